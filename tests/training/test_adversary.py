import csv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning.callbacks import LambdaCallback
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import Budget, GradientInjection, InjectionAdversary
from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.sources import citation_like_graph
from robust_diffusion.errors import ConfigError
from robust_diffusion.models import GCN
from robust_diffusion.training import Adversary
from robust_diffusion.training.fit_model import fit

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


def test_the_loss_of_training_alone_is_mixed(
    make_fit: Make, make_datamodule: Make, tmp_path: Path
) -> None:
    datamodule, negation = make_datamodule(), Negation()
    assert isinstance(negation, Adversary)
    assert isinstance(InjectionAdversary(), Adversary)
    model, logger, found = nn.Linear(16, 7), CSVLogger(tmp_path), []
    keep = LambdaCallback(on_after_backward=lambda *_: found.append(model.weight.grad.clone()))
    options = {"logger": logger, "callbacks": [keep]}
    fit = make_fit(max_epochs=1, learning_rate=1e-30, adversary=negation)
    fit(Wrapped(model), datamodule, directory=tmp_path, **options)
    with Path(logger.log_dir, "metrics.csv").open() as file:
        logged = {k: float(v) for row in csv.DictReader(file) for k, v in row.items() if v}
    losses = {}
    for name, stage, sign in (("train", "train", 1), ("attacked", "train", -1), ("val", "val", 1)):
        view = datamodule.view(stage)
        logits, y = model(sign * view.x)[view.mask], view.y[view.mask]
        losses[name] = nn.functional.cross_entropy(logits, y)
        assert logged[f"{name}_loss"] == pytest.approx(losses[name].item(), rel=1e-5)
        right = (logits.argmax(1) == y).float().mean().item()
        assert logged[f"{name}_accuracy"] == pytest.approx(right)
    mixed = 0.75 * losses["train"] + 0.25 * losses["attacked"]
    (expected,) = torch.autograd.grad(mixed, model.weight)
    torch.testing.assert_close(found, [expected])
    (seen,) = negation.seen
    assert seen.num_nodes == datamodule.view("train").num_nodes


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
        graph.x[test] = -1e6 * graph.x[test]
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


def test_batches_of_a_graph_are_attacked(make_datamodule: Make) -> None:
    pytest.importorskip("pymetis")
    from robust_diffusion.data import Clusters

    datamodule = make_datamodule(batching=Clusters(num_parts=4, parts_per_batch=2))
    assert weights(datamodule, adversary=InjectionAdversary(num_steps=1))


@pytest.mark.slow
def test_it_makes_a_model_more_robust() -> None:
    datamodule = GraphDataModule.from_data(citation_like_graph(200, 400, 16, feature_signal=2.0))
    kept: dict[str, list[float]] = {"train": [], "test": []}
    for adversary in (None, InjectionAdversary(step_size=0.5)):
        torch.manual_seed(0)
        model = GCN(16, 16, 7, layer_norm=True, dropout=0.0)
        options = {"max_epochs": 200, "accelerator": "cpu", "progress": False}
        fit(model, datamodule, adversary=adversary, **options)
        for stage in ("train", "test"):
            view = datamodule.view(stage)
            targets = view.mask.nonzero().squeeze(1)
            count = targets.numel()
            budget = Budget(count // 5, count, max_injected_edges=count).resolve(view.x)
            attack = GradientInjection(num_steps=20, step_size=0.5)
            generator = torch.Generator().manual_seed(0)
            attacked = attack(model.eval(), view, targets, budget, generator)
            with torch.no_grad():
                right = model(attacked.x, attacked.edge_index).argmax(1)[targets] == view.y[targets]
            kept[stage].append(right.float().mean().item())
    assert all(later > before + 0.2 for before, later in kept.values()), kept
