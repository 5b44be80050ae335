import csv
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import SPEIT, TDGIA, Attack, Budget, PerturbedGraph, PGDModification
from robust_diffusion.attacks.audit.files import ReadGraph, read_perturbed
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation import BlackBox, WhiteBox
from robust_diffusion.experiment.evaluate_run import RunResult
from robust_diffusion.flows import Heat
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GCN, GraphPDE, RobustGCN
from tests.models.small import gcn

Make = Callable[..., Any]
Run = Callable[..., RunResult]

NUM_LAYERS, NUM_STEPS = 2, 3
ATTACKS = {"speit": SPEIT(num_steps=3), "tdgia": TDGIA(num_steps=3)}
ONE = {"speit": ATTACKS["speit"]}


def heat(in_channels: int, out_channels: int) -> nn.Module:
    solver = Solver("euler", num_steps=NUM_STEPS)
    return GraphPDE(
        in_channels, 8, out_channels=out_channels, flow=Heat, solver=solver, num_layers=NUM_LAYERS
    )


def sampling(in_channels: int, out_channels: int) -> nn.Module:
    return RobustGCN(in_channels, 8, out_channels=out_channels, sample_at_test=True)


@pytest.fixture(scope="module")
def run_in(evaluate_in: Make) -> Make:
    """Evaluates two attacks in a folder; keyword arguments replace its parts."""
    return partial(evaluate_in, model=heat, attacks=ATTACKS, budget=Budget(4, 2, (-0.5, 0.5)))


@pytest.fixture
def run(run_in: Make, tmp_path: Path) -> Run:
    return partial(run_in, tmp_path)


@pytest.fixture(scope="module")
def done(run_in: Make, make_datamodule: Make, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of two attacks that many tests look at, its datamodule, victim and folder."""
    folder, victims, datamodule = tmp_path_factory.mktemp("done"), [], make_datamodule()

    def kept(in_channels: int, out_channels: int) -> nn.Module:
        victims.append(heat(in_channels, out_channels))
        return victims[-1]

    logger = CSVLogger(folder, name="", version="curves")
    result = run_in(folder, model=kept, datamodule=datamodule, logger=logger)
    return SimpleNamespace(
        result=result, datamodule=datamodule, victim=victims[-1].eval(), folder=folder, model=kept
    )


def stored(folder: Path, result: RunResult, name: str, clean: Data) -> ReadGraph:
    """An attacked graph of a run."""
    return read_perturbed(folder / "store" / result.files[name], clean)


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("nothing may be trained")


class Sure(GCN):
    """A user's model that returns probabilities, which is no logits."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return super().forward(x, edge_index, edge_weight).softmax(1)


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**32}, "seed=4294967296"),
        ({"attacks": {"../x": SPEIT()}}, r"attacks=\.\./x"),
        *(({"attacks": {name: SPEIT()}}, f"attacks={name}") for name in ("clean", "train")),
        ({"attacks": {"pgd": PGDModification()}}, r"budget\.edge_ratio"),
        ({"budget": Budget(edge_ratio=0.2)}, r"budget\.max_injected_nodes"),
        ({"model": partial(Sure, hidden_channels=8)}, "model: "),
    ],
)
def test_what_does_not_fit_is_refused_before_training(
    run: Run, make_fit: Make, monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any], key: str
) -> None:
    fit = make_fit()
    monkeypatch.setattr(type(fit), "__call__", never)
    with pytest.raises(ConfigError, match=key):
        run(fit=fit, **parts)


def test_a_cell_counts_times_and_spends(done: Any) -> None:
    result = done.result
    assert list(result.accuracy) == list(result.attacked["gcn"]) == ["clean", "speit", "tdgia"]
    assert (list(result.attacked), result.reused) == (["gcn"], [])
    assert result.mean_accuracy == result.accuracy
    assert list(result.surrogate_flags) == ["speit", "tdgia"]
    clean, targets = done.datamodule.graph, done.datamodule.target_nodes
    for name in result.accuracy:
        graph = clean if name == "clean" else stored(done.folder, result, name, clean)
        found = done.victim(graph.x, graph.edge_index).argmax(1)[targets] == clean.y[targets]
        assert result.accuracy[name] == pytest.approx(found.double().mean().item())
    assert result.epochs == 3
    assert result.nfe == NUM_LAYERS * NUM_STEPS
    assert set(result.seconds) == {"train", "surrogate gcn", "speit", "tdgia", "test"}
    assert all(seconds > 0 for seconds in result.seconds.values())
    for folder in ("victim", "surrogate-gcn"):
        assert len(list((done.folder / "run" / folder).glob("*.ckpt"))) == 1
    spent = {name: of["gcn"]["injected_nodes"] for name, of in result.spent.items()}
    assert spent == {"speit": 4, "tdgia": 4}
    with (done.folder / "curves" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {"train_loss", "val_accuracy"} <= set(rows[0])
    for name, accuracy in result.accuracy.items():
        (logged,) = [float(row[f"accuracy/{name}"]) for row in rows if row[f"accuracy/{name}"]]
        assert logged == pytest.approx(accuracy, abs=1e-6)


def test_every_victim_of_a_seed_faces_the_same(run: Run, done: Any, tmp_path: Path) -> None:
    other, clean = run(model=gcn), done.datamodule.graph
    assert done.result.attacked == other.attacked
    assert done.result.spent == other.spent
    for name in ATTACKS:
        first = stored(done.folder, done.result, name, clean)
        second = stored(tmp_path, other, name, clean)
        assert torch.equal(first.x, second.x)
        assert torch.equal(first.edge_index, second.edge_index)
    third = stored(tmp_path, run(seed=1, attacks=ONE), "speit", clean)
    assert not torch.equal(stored(tmp_path, other, "speit", clean).x, third.x)


def test_what_was_computed_before_is_taken_from_the_store(
    run_in: Make, make_fit: Make, monkeypatch: pytest.MonkeyPatch, done: Any
) -> None:
    fit = make_fit()
    monkeypatch.setattr(type(fit), "__call__", never)
    monkeypatch.setattr(SPEIT, "__call__", never)
    again = run_in(done.folder, fit=fit, attacks=ONE, model=done.model)
    assert again.reused == ["victim", "speit"]
    for key in ("accuracy", "files", "seconds"):
        assert getattr(again, key)["speit"] == getattr(done.result, key)["speit"]


@pytest.mark.parametrize("white_box", [False, True])
def test_a_model_that_samples_has_one_result(run: Run, make_fit: Make, white_box: bool) -> None:
    threat = WhiteBox() if white_box else BlackBox({"gcn": sampling}, make_fit())
    first, again = (run(model=sampling, threat=threat, attacks=ONE) for _ in range(2))
    assert first.reused == []
    assert again.reused
    assert (again.accuracy, again.attacked) == (first.accuracy, first.attacked)


class Rectified(GCN):
    """A GCN of rectified features, in place or not."""

    def __init__(self, *sizes: int, in_place: bool, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.relu = nn.ReLU(inplace=in_place)

    def forward(self, x: Tensor, *edges: Any) -> Tensor:
        return super().forward(self.relu(x), *edges)


def test_evaluate_run_model_that_writes_in_place(run_in: Make, tmp_path: Path) -> None:
    def run(in_place: bool) -> RunResult:
        def build(in_channels: int, out_channels: int) -> nn.Module:
            return Rectified(in_channels, 8, out_channels=out_channels, in_place=in_place)

        return run_in(tmp_path / str(in_place), model=build, threat=WhiteBox(), attacks=ONE)  # type: ignore[no-any-return]

    own, plain = run(in_place=True), run(in_place=False)
    assert (own.accuracy, own.val_accuracy) == (plain.accuracy, plain.val_accuracy)


def test_worst_and_mean_of_surrogates(run: Run, make_fit: Make) -> None:
    threat = BlackBox({"gcn": gcn, "other": heat}, make_fit())
    result = run(threat=threat, attacks=ONE)
    assert set(result.files) == {"victim", "speit/gcn", "speit/other"}
    assert set(result.attacked) == set(result.spent["speit"]) == {"gcn", "other"}
    assert result.accuracy["speit"] <= result.mean_accuracy["speit"]
    assert result.accuracy["clean"] == result.mean_accuracy["clean"]


def test_no_surrogate_of_the_victims_architecture_is_the_victim(run: Run, make_fit: Make) -> None:
    threat = {"surrogates": {"gcn": {}}, "fit": {}}
    key = {"model": {}, "training": {}, "attacks": {"speit": {}}, "threat": threat}
    alone = {"attacks": ONE, "model": gcn, "cache_key": key}
    result = run(**alone)
    assert result.same_weights == []
    assert result.files["speit"] != run(**alone, seed=1).files["speit"]
    old = BlackBox({"gcn": gcn}, make_fit(), seeding="run")
    assert run(**alone, threat=old).same_weights == ["gcn"]


class Worst(Attack):
    """Has two parts, and is handed the true classes."""

    kind = "injection"
    is_worst_case = True
    labels: Tensor | None = None

    def __call__(self, victim, task, budget, generator):  # type: ignore[no-untyped-def]
        self.labels = task.labels
        self.predicted = victim.clean_logits.argmax(1)[task.targets]
        parts = {"first": 0.5, "second": 0.25}
        return PerturbedGraph(task.x, task.edge_index, task.x.size(0), parts, "second")


def test_a_white_box_needs_no_surrogate_and_parts_are_recorded_and_stored(run: Run) -> None:
    for reused in (False, True):
        attack = Worst()
        result = run(threat=WhiteBox(), attacks={"worst": attack, **ONE})
        assert result.attacked == {"victim": result.accuracy}
        assert set(result.seconds) == {"train", "worst", "speit", "test"}
        assert result.parts == {"worst": {"first": 0.5, "second": 0.25}}
        assert ("worst" in result.reused) == reused
        assert (attack.labels is None) == reused
        assert reused or not torch.equal(attack.labels, attack.predicted)
    attack = Worst()
    attack.is_worst_case = False
    run(threat=WhiteBox(), attacks={"plain": attack})
    assert torch.equal(attack.labels, attack.predicted)


class Overreaching(PGDModification):
    """Takes steps of epsilon without saying so."""

    unbounded: Mapping[str, str] = {}


@pytest.mark.parametrize("cls", [PGDModification, Overreaching])
def test_a_limit_that_the_reading_waives_is_told(run: Run, cls: type[PGDModification]) -> None:
    attacks = {"pgd": cls(variant="step", num_steps=5)}
    result = run(attacks=attacks, budget=Budget(0, 0, (-0.94, 0.94), 0, 0.2, 0.2))
    assert result.budget["epsilon"] == 0.1
    assert result.spent["pgd"]["gcn"]["largest_feature_change"] > 0.2
    assert ("budget_overspent" in result.flags.get("pgd", [])) is (cls is Overreaching)
    waived = {name: set(keys) for name, keys in result.unbounded.items()}
    assert waived == ({} if cls is Overreaching else {"pgd": {"epsilon", "edge_ratio"}})
