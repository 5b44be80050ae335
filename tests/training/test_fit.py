import csv
import math
import pickle
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.callbacks import LambdaCallback
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import models as pyg

from robust_diffusion.attacks import InjectionAdversary
from robust_diffusion.data import Clusters, GraphDataModule
from robust_diffusion.data.sources import citation_like_graph
from robust_diffusion.errors import ConfigError, DataError, TrainingError
from robust_diffusion.models import GCN, GraphPDE
from robust_diffusion.training import Adversary, Fit, NodeClassification
from robust_diffusion.training.fit_model import fit
from tests.drawn import CLASSES, FEATURES, drawn_data
from tests.graphs import without_type_checks


class Linear(nn.Module):
    """Ignores the edges; keeps the degrees that it is given, if any."""

    normalizes_by_degree = False

    def __init__(self, in_channels: int = 16, out_channels: int = 7) -> None:
        super().__init__()
        self.first = nn.Linear(in_channels, out_channels)
        self.degrees: list[Tensor | None] = []

    def forward(self, x: Tensor, edge_index: Tensor, degree: Tensor | None = None) -> Tensor:
        self.degrees.append(degree)
        return self.first(x)  # type: ignore[no-any-return]


class Scripted(nn.Module):
    """Reaches a given validation accuracy in each epoch; `epoch` is part of its weights."""

    epoch: Tensor

    def __init__(self, view: Data, accuracies: Sequence[float]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(7))
        self.register_buffer("epoch", torch.tensor(0))
        self.view, self.accuracies = view, accuracies

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.training:
            self.epoch += 1
            return self.weight.expand(x.size(0), -1)
        y, scored = self.view.y, self.view.mask.nonzero().squeeze(1)
        right = round(self.accuracies[int(self.epoch) - 1] * scored.numel())
        answers = y.clone()
        answers[scored[right:]] = (answers[scored[right:]] + 1) % 7
        return F.one_hot(answers, 7).float()


Make = Callable[..., Any]


def test_stops_at_max_epochs_or_when_the_loss_no_longer_falls(
    make_fit: Make, make_datamodule: Make, tmp_path: Path
) -> None:
    seen: list[int] = []
    count = pl.callbacks.LambdaCallback(on_train_epoch_end=lambda *_: seen.append(len(seen)))
    fit = make_fit(max_epochs=4)
    result = fit(Linear(), make_datamodule(), directory=tmp_path, callbacks=[count])
    assert result.epochs == 4 == len(seen)
    assert result.seconds > 0
    datamodule, fit = make_datamodule(), make_fit(max_epochs=50, patience=3)
    constant = Scripted(datamodule.view("val"), [0.5] * 50)
    # The first epoch sets the loss to beat.
    assert fit(constant, datamodule, directory=tmp_path).epochs == 4


@pytest.mark.parametrize(("accuracies", "best"), [([0.6, 0.4, 0.2], 1), ([0.2, 0.6, 0.6], 2)])
def test_ends_with_the_weights_of_the_best_epoch(
    make_fit: Make, make_datamodule: Make, tmp_path: Path, accuracies: list[float], best: int
) -> None:
    datamodule = make_datamodule()
    model = Scripted(datamodule.view("val"), accuracies)
    result = make_fit(patience=3)(model, datamodule, directory=tmp_path)
    assert result.epochs == 3
    assert result.module.model is model
    assert model.epoch == best
    assert not model.training
    assert result.val_accuracy == pytest.approx(max(accuracies))
    (stored,) = tmp_path.glob("*.ckpt")
    assert result.checkpoint == stored
    state = torch.load(stored, weights_only=True)["state_dict"]
    assert state["model.epoch"] == best


def test_two_fits_into_one_directory_at_once_keep_apart(
    make_fit: Make, make_datamodule: Make, tmp_path: Path
) -> None:
    results = []

    def train(accuracies: list[float], **callbacks: Any) -> None:
        model = Scripted((data := make_datamodule()).view("val"), accuracies)
        fit = make_fit(max_epochs=len(accuracies))
        results.append(fit(model, data, directory=tmp_path, **callbacks))

    between = LambdaCallback(on_fit_end=lambda *_: train([0.6]))
    train([0.2, 0.8], callbacks=[between])
    assert [result.epochs for result in results] == [1, 2]
    assert {result.checkpoint for result in results} == set(tmp_path.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_fit_leaves_its_best_weights_in_one_file(
    make_fit: Make, make_datamodule: Make, tmp_path: Path, error: type[BaseException]
) -> None:
    def interrupt(trainer: pl.Trainer, *_: Any) -> None:
        assert not any(tmp_path.iterdir())
        if trainer.current_epoch == 2:
            raise error

    model = Scripted((data := make_datamodule()).view("val"), [0.2, 0.6, 0.4, 0.8])
    late = LambdaCallback(on_train_epoch_start=interrupt)
    with pytest.raises(error):
        make_fit(max_epochs=4)(model, data, directory=tmp_path, callbacks=[late])
    (stored,) = tmp_path.iterdir()
    assert torch.load(stored, weights_only=True)["state_dict"]["model.epoch"] == 2 == model.epoch


def test_a_validation_before_the_first_epoch_is_not_the_best(make_datamodule: Make) -> None:
    data = make_datamodule()
    fit = fit_of(num_sanity_val_steps=1)
    model = Scripted(data.view("val"), [0.2, 0.3, 0.4, 0.9])  # -1, the last, before the first epoch
    assert fit(model, data).best_epoch == 3


@pytest.mark.faults
def test_a_folder_that_cannot_be_written_is_named_before_training(
    make_fit: Make, make_datamodule: Make, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    model = Scripted((data := make_datamodule()).view("val"), [])
    with pytest.raises(ConfigError, match=r"^directory .*file"):
        make_fit()(model, data, directory=tmp_path / "file")


@pytest.mark.faults
@pytest.mark.parametrize("description", ["../../x heat", "/x heat", "{epoch} a/b"])
def test_the_checkpoint_stays_in_its_folder(
    make_fit: Make, make_datamodule: Make, tmp_path: Path, description: str
) -> None:
    folder = tmp_path / "a" / "b"
    fit, graph = make_fit(max_epochs=1), make_datamodule()
    model = Scripted(graph.view("val"), [0.5])
    result = fit(model, graph, directory=folder, description=description)
    assert result.checkpoint.parent == folder
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("adversary", [None, InjectionAdversary()])
def test_an_infinite_loss_names_the_epoch(make_datamodule: Make, adversary: Any) -> None:
    model = Linear()
    model.first.register_forward_hook(lambda *args: args[2] * math.inf)
    train = Fit(fit_of()._trainer, key="threat.fit", adversary=adversary)
    with pytest.raises(TrainingError, match=r"epoch 0; .* threat\.fit\.learning_rate=0\.01"):
        train(model, make_datamodule())


def test_an_epoch_whose_logits_are_nan_is_not_the_best(
    make_fit: Make, make_datamodule: Make, tmp_path: Path
) -> None:
    class Broken(Scripted):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            is_broken = not self.training and self.epoch in (1, 3)
            return super().forward(x, edge_index) * (math.nan if is_broken else 1)

    fit, datamodule = make_fit(), make_datamodule()
    model = Broken(datamodule.view("val"), [0.0, 0.0, 0.0])
    result = fit(model, datamodule, directory=tmp_path)
    assert (result.best_epoch, result.val_accuracy) == (2, 0.0)
    with pytest.raises(TrainingError, match=r"NaN .* training\.learning_rate=1e\+30"):
        make_fit(max_epochs=1, learning_rate=1e30)(
            GCN(16, 8, out_channels=7), datamodule, directory=tmp_path
        )


def fit_of(**options: Any) -> Fit:
    """A Fit of few epochs whose trainer has the given options."""
    quiet = {"enable_model_summary": False, "num_sanity_val_steps": 0}
    trainer = partial(pl.Trainer, **({"accelerator": "cpu"} | quiet | options))
    return Fit(trainer, max_epochs=3)


@pytest.mark.parametrize(
    ("options", "batching", "key"),
    [
        ({"accelerator": "nope"}, None, "trainer.accelerator=nope"),
        ({"devices": 0}, None, "trainer.devices=0"),
        ({"precision": "bf16-true"}, None, "trainer.precision=bf16-true"),
        ({"max_steps": "abc"}, None, "trainer.max_steps=abc"),
        ({"max_epochs": 50}, None, "training.max_epochs"),
        ({"logger": True}, None, "trainer.logger=True"),
        ({"limit_val_batches": 0}, None, "trainer.limit_val_batches"),
        ({"limit_val_batches": 0.5}, None, "trainer.limit_val_batches=0.5: "),
        ({"val_check_interval": 2}, None, "trainer.val_check_interval=2: "),
        ({"check_val_every_n_epoch": 0}, None, "trainer.check_val_every_n_epoch=0: "),
        ({"devices": 2}, None, "trainer.devices, trainer.num_nodes: expected one device"),
        ({"devices": 1, "num_nodes": 2}, Clusters(8, 1), "trainer.devices, trainer.num_nodes"),
    ],
)
def test_impossible_trainer_options_are_refused(
    make_datamodule: Make, tmp_path: Path, options: dict[str, Any], batching: Any, key: str
) -> None:
    datamodule = make_datamodule(batching=batching)
    with pytest.raises(ConfigError, match=re.escape(key)):
        fit_of(**options)(Linear(), datamodule, directory=tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_callback_that_refuses_the_training_is_a_config_error(
    make_datamodule: Make, tmp_path: Path
) -> None:
    class Refusing(pl.Callback):
        def on_train_start(self, *_: Any) -> None:
            raise MisconfigurationException("needs two devices")

    with pytest.raises(ConfigError, match="needs two devices"):
        fit_of()(Linear(), make_datamodule(), directory=tmp_path, callbacks=[Refusing()])


@pytest.mark.parametrize("options", [{"max_steps": 0}, {"check_val_every_n_epoch": 5}])
def test_without_a_validated_epoch_there_is_no_model(
    make_datamodule: Make, tmp_path: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(TrainingError):
        fit_of(**options)(Linear(), make_datamodule(), directory=tmp_path)


def gcn(out_channels: int = CLASSES, **options: Any) -> pyg.GCN:
    torch.manual_seed(0)
    return pyg.GCN(FEATURES, 8, 2, out_channels, **options)


@pytest.mark.parametrize(
    ("options", "error", "key"),
    [
        ({"model": gcn(9)}, ConfigError, "model: "),
        ({"model": pyg.GCN}, ConfigError, "model: "),
        ({"data": drawn_data(val_mask=None)}, DataError, "data.val_mask: "),
        ({"data": drawn_data(y=torch.zeros(120)), "model": gcn(2)}, DataError, "data.y: "),
        ({"max_epochs": 0}, ConfigError, "fit.max_epochs=0"),
    ],
)
def test_wrong_calls_are_refused(options: dict[str, Any], error: type[Exception], key: str) -> None:
    given = {"model": gcn(), "data": drawn_data(), "max_epochs": 1} | options
    with without_type_checks(), pytest.raises(error, match=f"^{key}"):
        fit(**given)


def test_a_model_that_was_tested_is_trained_with_dropout(
    make_datamodule: Make, tmp_path: Path
) -> None:
    model = Linear()
    model.eval().register_forward_hook(lambda m, *_: modes.append(m.training))
    modes: list[bool] = []
    fit_of()(model, make_datamodule(), directory=tmp_path)
    assert modes[:3] == [False, True, False]  # tried, trained, validated


def test_a_norm_behind_a_lazy_layer_sees_no_validation_node() -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.LazyLinear(CLASSES), nn.BatchNorm1d(CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.norm(self.first(x))  # type: ignore[no-any-return]

    model = Lazy()
    fit(model, drawn_data(), max_epochs=1, accelerator="cpu", progress=False)
    assert model.norm.num_batches_tracked == 1
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_an_extra_state_may_be_any_object() -> None:
    class Dated(Linear):
        state: Any = Path("today")

        def get_extra_state(self) -> Any:
            return self.state

        def set_extra_state(self, state: Any) -> None:
            self.restored = state

    model = Dated(FEATURES, CLASSES)
    fit(model, drawn_data(), max_epochs=1, accelerator="cpu", progress=False)
    assert model.restored == Path("today")


def trainer(folder: Path, **options: Any) -> pl.Trainer:
    return pl.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        default_root_dir=folder,
        **options,
    )


def test_a_bare_trainer_fits_tests_and_predicts(
    make_datamodule: Callable[..., Any], tmp_path: Path
) -> None:
    datamodule = make_datamodule()
    graph = datamodule.graph
    module = NodeClassification(Linear(), num_classes=7)
    bare = trainer(tmp_path, max_epochs=1)
    bare.fit(module, datamodule)
    (tested,) = bare.test(module, datamodule, verbose=False)
    (logits,) = bare.predict(module, datamodule)
    assert torch.equal(logits, module.model(graph.x, graph.edge_index))
    right = (logits.argmax(1) == graph.y)[datamodule.target_nodes]
    assert tested["test_accuracy"] == pytest.approx(right.double().mean().item())


@pytest.mark.parametrize(
    ("build", "way"),
    [(GCN, "trainer"), (partial(GraphPDE, flow="heat"), "model"), (GCN, "adversary")],
)
def test_double_precision_is_kept(build: Callable[..., nn.Module], way: str) -> None:
    model, data = build(FEATURES, 8, out_channels=CLASSES), drawn_data()
    if way == "trainer":
        options = {"enable_checkpointing": False, "max_epochs": 1, "precision": "64-true"}
        module = NodeClassification(model, num_classes=CLASSES)
        trainer(Path(), **options).fit(module, GraphDataModule.from_data(data))
    else:
        adversary = InjectionAdversary() if way == "adversary" else None
        fit(model.double(), data, max_epochs=1, accelerator="cpu", adversary=adversary)
    assert {p.dtype for p in model.parameters()} == {torch.float64}
    assert data.x.dtype == torch.float32


class Subclass(GCN):
    """A user's own, which gets its edges sorted."""


@pytest.mark.parametrize(("build", "dtype"), [(GCN, torch.bfloat16), (Subclass, torch.float32)])
def test_leaked_degrees_suit_any_model(build: type[GCN], dtype: torch.dtype) -> None:
    source = partial(GRAPH, num_features=FEATURES)
    datamodule = GraphDataModule(source, name="toy", degree_leak=True)
    model = build(FEATURES, 8, out_channels=CLASSES).to(dtype)
    assert fit(model, datamodule, max_epochs=1, accelerator="cpu", progress=False).epochs == 1


def test_a_checkpoint_is_read_into_a_model_and_runs_no_code(
    make_fit: Make, make_datamodule: Make, tmp_path: Path
) -> None:
    train = make_fit(max_epochs=2, learning_rate=0.5, weight_decay=0.25)
    result = train(Linear(), make_datamodule(), directory=tmp_path)
    found = NodeClassification.load_from_checkpoint(result.checkpoint, model=Linear())
    (group,) = found.configure_optimizers().param_groups
    assert (group["lr"], group["weight_decay"]) == (0.5, 0.25)
    for name, weight in found.state_dict().items():
        assert torch.equal(weight, result.module.state_dict()[name])
    torch.save({"state_dict": {}, "hyper_parameters": Linear()}, result.checkpoint)
    with pytest.raises(pickle.UnpicklingError):
        NodeClassification.load_from_checkpoint(result.checkpoint, model=Linear())


GRAPH = partial(citation_like_graph, num_nodes=200, num_edges=400, num_features=16)


class Negation:
    """Turns the sign of every feature; keeps what it is handed."""

    attacked_share = 0.25

    def __init__(self) -> None:
        self.seen: list[Data] = []

    def against(self, model: nn.Module) -> Callable[[Data], Data]:
        return self.attack

    def attack(self, data: Data) -> Data:
        self.seen.append(data)
        return Data(x=-data.x, edge_index=data.edge_index, y=data.y, mask=data.mask)


def test_the_loss_of_training_alone_is_mixed(
    make_fit: Make, make_datamodule: Make, tmp_path: Path
) -> None:
    datamodule, negation = make_datamodule(), Negation()
    assert isinstance(negation, Adversary)
    assert isinstance(InjectionAdversary(), Adversary)
    model, logger, found = Linear(), CSVLogger(tmp_path), []
    weight = model.first.weight
    keep = LambdaCallback(on_after_backward=lambda *_: found.append(weight.grad.clone()))
    options = {"logger": logger, "callbacks": [keep]}
    fit = make_fit(max_epochs=1, learning_rate=1e-30, adversary=negation)
    fit(model, datamodule, directory=tmp_path, **options)
    with Path(logger.log_dir, "metrics.csv").open() as file:
        logged = {k: float(v) for row in csv.DictReader(file) for k, v in row.items() if v}
    losses = {}
    for name, stage, sign in (("train", "train", 1), ("attacked", "train", -1), ("val", "val", 1)):
        view = datamodule.view(stage)
        logits, y = model.first(sign * view.x)[view.mask], view.y[view.mask]
        losses[name] = nn.functional.cross_entropy(logits, y)
        assert logged[f"{name}_loss"] == pytest.approx(losses[name].item(), rel=1e-5)
        right = (logits.argmax(1) == y).float().mean().item()
        assert logged[f"{name}_accuracy"] == pytest.approx(right)
    mixed = 0.75 * losses["train"] + 0.25 * losses["attacked"]
    (expected,) = torch.autograd.grad(mixed, weight)
    torch.testing.assert_close(found, [expected])
    (seen,) = negation.seen
    assert seen.num_nodes == datamodule.view("train").num_nodes


@pytest.mark.parametrize("transductive", [True, False])
def test_a_transductive_training_sees_the_whole_graph(*, transductive: bool) -> None:
    data, seen = drawn_data(), set[int]()

    class Watched(Linear):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            if self.training:
                seen.add(x.size(0))
            return super().forward(x, edge_index)

    fit(Watched(FEATURES, CLASSES), data, max_epochs=1, transductive=transductive, progress=False)
    assert (max(seen) == data.num_nodes) == transductive
    datamodule = GraphDataModule.from_data(data)
    with pytest.raises(ConfigError, match="transductive=True: the datamodule is inductive"):
        fit(Linear(FEATURES, CLASSES), datamodule, transductive=True)


def test_no_test_node_is_seen() -> None:
    def poisoned() -> Data:
        graph = GRAPH()
        test = graph.index_test
        graph.x[test] = -1e6 * graph.x[test]
        graph.y[test] = graph.y[test].roll(1)
        touches = torch.isin(graph.edge_index, test).any(0)
        graph.edge_index = graph.edge_index[:, ~touches]
        return graph

    found = []
    for source in (GRAPH, poisoned):
        data = GraphDataModule(source, name="toy", normalize=None)
        torch.manual_seed(0)
        options = {"max_epochs": 4, "accelerator": "cpu", "progress": False}
        found.append(GCN(16, 8, out_channels=7))
        fit(found[-1], data, adversary=InjectionAdversary(num_steps=2), **options)
    for clean, changed in zip(*(of.parameters() for of in found), strict=True):
        assert torch.equal(clean, changed)
