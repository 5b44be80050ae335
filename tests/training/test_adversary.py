import csv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import Budget, GradientInjection, InjectionAdversary
from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.sources import citation_like_graph
from robust_diffusion.errors import ConfigError, TrainingError
from robust_diffusion.models import GCN
from robust_diffusion.training import Adversary
from robust_diffusion.training.fit_model import fit
from tests.training.toys import Overflowing

Make = Callable[..., Any]
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


def weights(data: GraphDataModule, seed: int = 0, **options: Any) -> list[Tensor]:
    torch.manual_seed(seed)
    model = GCN(16, 8, 7)
    fit(model, data, accelerator="cpu", progress=False, **({"max_epochs": 4} | options))
    return [p.detach() for p in model.parameters()]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a, b, strict=True))


def test_loss_and_accuracy_are_mixed(make_fit: Make, make_datamodule: Make, tmp_path: Path) -> None:
    datamodule, negation = make_datamodule(), Negation()
    assert isinstance(negation, Adversary)
    assert isinstance(InjectionAdversary(), Adversary)
    model = nn.Linear(16, 7)
    wrapped = Wrapped(model)
    logger = CSVLogger(tmp_path)
    fit = make_fit(max_epochs=1, learning_rate=1e-30, adversary=negation)
    result = fit(wrapped, datamodule, directory=tmp_path, logger=logger)
    with Path(logger.log_dir, "metrics.csv").open() as file:
        logged = {k: float(v) for row in csv.DictReader(file) for k, v in row.items() if v}
    for stage in ("train", "val"):
        view = datamodule.view(stage)
        y = view.y[view.mask]
        logits = [model(sign * view.x)[view.mask] for sign in (1, -1)]
        loss, worse = (nn.functional.cross_entropy(z, y).item() for z in logits)
        right, lower = ((z.argmax(1) == y).float().mean().item() for z in logits)
        assert logged[f"{stage}_loss"] == pytest.approx(0.75 * loss + 0.25 * worse, rel=1e-5)
        assert logged[f"{stage}_accuracy"] == pytest.approx(0.75 * right + 0.25 * lower)
    assert result.val_accuracy == pytest.approx(logged["val_accuracy"])
    assert [data.num_nodes for data in negation.seen] == [
        datamodule.view(stage).num_nodes for stage in ("train", "val")
    ]


class Wrapped(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.model(x)  # type: ignore[no-any-return]


def test_without_an_adversary_nothing_changes(
    make_fit: Make, make_datamodule: Make, tmp_path: Path
) -> None:
    found, states = [], []
    for options in ({}, {"adversary": None}, {"adversary": {}}):  # as adversary=none composes
        torch.manual_seed(0)
        model = GCN(16, 8, 7)
        make_fit(**options)(model, make_datamodule(), directory=tmp_path)
        found.append([p.detach() for p in model.parameters()])
        states.append(torch.get_rng_state())
    assert all(same(found[0], other) for other in found[1:])
    assert all(torch.equal(states[0], other) for other in states[1:])


def test_what_is_no_adversary_is_refused(make_fit: Make) -> None:
    with pytest.raises(ConfigError, match=r"training\.adversary=.*adversary=injection"):
        make_fit(adversary={"num_steps": 3})


def test_the_seed_tells_the_weights() -> None:
    data = GraphDataModule(GRAPH, name="toy")
    adversary = InjectionAdversary(num_steps=2, epochs_per_draw=2)
    first, again, other = (weights(data, seed, adversary=adversary) for seed in (0, 0, 1))
    assert same(first, again)
    assert not same(first, other)
    assert not same(first, weights(data))


def test_no_test_node_is_seen() -> None:
    def poisoned() -> Data:
        graph = GRAPH()
        test = graph.index_test
        graph.x[test] = 1e6 * torch.rand(test.numel(), 16)
        graph.y[test] = graph.y[test].roll(1)
        touches = torch.isin(graph.edge_index, test).any(0)
        graph.edge_index = graph.edge_index[:, ~touches]
        return graph

    adversary = InjectionAdversary(num_steps=2)
    options = {"name": "toy", "normalize": None}
    clean, changed = (
        weights(GraphDataModule(source, **options), adversary=adversary)
        for source in (GRAPH, poisoned)
    )
    assert same(clean, changed)


def test_a_loss_that_is_not_finite_is_told_as_ever(
    make_fit: Make, make_datamodule: Make, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match="the output of blow is not finite"):
        make_fit(adversary=InjectionAdversary())(
            Overflowing(), make_datamodule(), directory=tmp_path
        )


def test_batches_of_a_graph_are_attacked(make_datamodule: Make) -> None:
    pytest.importorskip("torch_sparse")
    from robust_diffusion.data import Clusters

    datamodule = make_datamodule(batching=Clusters(num_parts=4, parts_per_batch=2))
    assert weights(datamodule, adversary=InjectionAdversary(num_steps=1))


def test_it_makes_a_model_more_robust() -> None:
    data = citation_like_graph(400, 800, 16, feature_signal=2.0)
    kept = []
    for adversary in (None, InjectionAdversary(num_steps=2, step_size=0.5)):
        torch.manual_seed(0)
        model = GCN(16, 16, 7, layer_norm=True, dropout=0.0)
        options = {"max_epochs": 150, "accelerator": "cpu", "progress": False}
        fit(model, data, adversary=adversary, **options)
        targets = data.index_test
        attacked = GradientInjection(num_steps=20, edges="equal", loss="tanh_margin")(
            model.eval(),
            data,
            targets,
            Budget(10, 40, max_injected_edges=targets.numel()).resolve(data.x),
            torch.Generator().manual_seed(0),
        )
        with torch.no_grad():
            predicted = model(attacked.x, attacked.edge_index).argmax(1)
        kept.append((predicted[targets] == data.y[targets]).float().mean().item())
    assert kept[1] > kept[0] + 0.1, kept
