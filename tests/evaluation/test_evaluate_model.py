import copy
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import models as pyg

from robust_diffusion import Attack, Budget, RobustnessReport, attack, evaluate, models
from robust_diffusion.attacks import (
    PGD,
    TDGIA,
    AutoInjection,
    PerturbedGraph,
    RandomFlip,
    RandomInjection,
    Task,
)
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError, DataError, RobustDiffusionError
from robust_diffusion.evaluation import WhiteBox
from robust_diffusion.evaluation.saved_graphs import measured_again
from robust_diffusion.models.victim import Victim, sorted_by
from robust_diffusion.system.artifact import read_artifact
from robust_diffusion.system.tensor_hashes import state_hash
from robust_diffusion.training import NodeClassification
from robust_diffusion.training.fit_model import fit
from tests.drawn import CLASSES, FEATURES, NODES, drawn_data
from tests.graphs import without_type_checks

BUDGET = Budget(4, 5, node_ratio=0.2, edge_ratio=0.2)
DATA = drawn_data()

PYG = ("GCN", "GAT")
PARTS = ("GRBModel", "Guard", "RawFeatures", "Rewiring")
LIKE_GCN = ("APPNP", "ElasticGNN", "GAT", "GCNJaccard", "GIN", "GPRGNN", "GraphSAGE", "RUNG")
LIKE_GCN += ("SoftMedianGDC",)
"""Models that nothing treats apart from a GCN."""
OWN = [name for name in models.__all__ if name not in ("GraphPDE", *PARTS, *LIKE_GCN)]
SLOW = ("BeltramiGuard", "GCNSVD")
MODELS = [
    *[pytest.param(partial(getattr(pyg, n), FEATURES, 8, 2, CLASSES), id=f"pyg {n}") for n in PYG],
    *[
        pytest.param(
            partial(getattr(models, name), FEATURES, 8, out_channels=CLASSES),
            id=name,
            marks=[pytest.mark.slow] if name in SLOW else [],
        )
        for name in OWN
    ],
    pytest.param(
        partial(models.GraphPDE, FEATURES, 8, out_channels=CLASSES, flow="heat", num_layers=2),
        id="heat",
    ),
]


class Idle(Attack):
    name, kind = "idle", "injection"

    def __call__(self, victim: Victim, task: Task, *_: Any) -> PerturbedGraph:
        return PerturbedGraph(task.x, task.edge_index, len(task.x))


@cache
def trained(name: str, seed: int) -> nn.Module:
    """PyG's, trained for a moment; nobody may change it."""
    torch.manual_seed(seed)
    model: nn.Module = getattr(pyg, name)(FEATURES, 8, 2, CLASSES)
    fit(model, DATA, max_epochs=30, accelerator="cpu")
    return model


@pytest.fixture
def gcn() -> nn.Module:
    return trained("GCN", 0)


@pytest.fixture
def gat() -> nn.Module:
    return trained("GAT", 1)


def accuracy(model: nn.Module, data: Data) -> float:
    model.eval()
    with torch.no_grad():
        right = model(data.x, data.edge_index).argmax(1) == data.y
    return float(right[data.test_mask].double().mean())


@pytest.mark.parametrize("build", MODELS)
def test_evaluate_each_model(build: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model, data = build(), drawn_data()
    model.train()
    before, state = data.clone(), state_hash(model.state_dict())
    attacks = [AutoInjection(num_steps=2), PGD(num_steps=2)]
    report = evaluate(model, data, attacks=attacks, budget=BUDGET, progress=False)
    assert all(part.training for part in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert state_hash(model.state_dict()) == state
    assert all(torch.equal(data[key], before[key]) for key in ("x", "y", "edge_index"))
    assert report.clean_accuracy == accuracy(model, data)
    assert [of.name for of in report.attacks] == ["random", "auto", "pgd"]
    for of in report.attacks:
        graph = of.graph.to_data()
        assert graph.validate()
        assert of.accuracy == accuracy(model, graph)
        assert graph.num_nodes == NODES + 4
        assert of.spent.injected_edges <= 20  # `auto` keeps those alone that decide a target
        assert of.name == "auto" or of.spent.injected_edges == 20
    assert report.worst.accuracy == min(of.accuracy for of in report.attacks)
    if type(model) is models.MLP:  # which others derive from
        assert report.worst.accuracy == report.clean_accuracy


def test_evaluate_agrees_with_a_run(
    evaluate_in: Callable[..., Any], make_datamodule: Callable[..., Any], tmp_path: Path
) -> None:
    made, store = {"pgd": PGD(num_steps=3)}, tmp_path / "store"
    run = evaluate_in(tmp_path, threat=WhiteBox(), attacks=made, budget=BUDGET, seed=5)
    model = models.GCN(16, 8, out_channels=7)
    model.load_state_dict(read_artifact(store / run.files["victim"]).tensors)
    report = evaluate(model, make_datamodule(), attacks=made, budget=BUDGET, seed=5)
    assert report.clean_accuracy == run.accuracy["clean"]
    assert report["pgd"].accuracy == run.accuracy["pgd"]
    assert asdict(report["pgd"].spent) == run.spent["pgd"]["victim"]
    assert [flag.code for flag in report["pgd"].flags] == run.flags.get("pgd", [])
    kept = read_artifact(store / run.files["pgd"]).tensors
    assert torch.equal(report["pgd"].graph.x[200:], kept["injected_x"])
    assert torch.equal(report["pgd"].graph.edge_index, sorted_by(0, kept["edge_index"])[0])


def test_attack_gives_the_graph_of_evaluate(gcn: nn.Module) -> None:
    made = PGD(num_steps=3)
    wrapped = NodeClassification(gcn, num_classes=CLASSES)
    named = GraphDataModule.from_data(DATA, name="mine")
    report = evaluate(wrapped, named, attacks=["DICE", made], budget=BUDGET, seed=3)
    assert {of.name for of in report.attacks if of.is_control} == {"random_flip", "random"}
    assert (report.dataset, report.weights) == ("mine", state_hash(gcn.state_dict()))
    alone = attack(gcn, DATA, BUDGET, made, seed=3)
    assert torch.equal(alone.x, report["pgd"].graph.x)
    assert torch.equal(alone.edge_index, report["pgd"].graph.edge_index)
    other = attack(gcn, DATA, BUDGET, made, seed=4)
    assert not torch.equal(alone.edge_index, other.edge_index)
    assert alone.to_data().test_mask.sum() == 40


def test_evaluate_passes_per_graph() -> None:
    model, shapes = models.GCN(FEATURES, 8, out_channels=CLASSES), list[int]()
    model.register_forward_pre_hook(lambda _, given: shapes.append(given[1].size(1)))
    evaluate(model, DATA, attacks="random", budget=BUDGET, progress=False)
    # Twice on the clean graph, to see whether the model samples.
    assert sorted(Counter(shapes).values()) == [1, 2]


def small(in_channels: int = FEATURES) -> nn.Module:
    return pyg.GCN(in_channels, 4, 2, CLASSES)


@pytest.mark.parametrize(
    ("error", "key", "given"),
    [
        *((ConfigError, "model", {"model": of}) for of in (pyg.GCN, small(9))),
        (ConfigError, "attacks=pdg", {"attacks": "pdg"}),
        *(
            (ConfigError, "attacks", {"attacks": of})
            for of in ([], PGD, [PGD(), "pgd"], {"random": PGD()}, RandomFlip(add_ratio=0.1))
        ),
        *((ConfigError, f"attacks={of}", {"attacks": {of: "random"}}) for of in ("", "clean")),
        (ConfigError, "threat=grey_box", {"threat": "grey_box"}),
        (ConfigError, "surrogates", {"threat": "black_box"}),
        (ConfigError, "surrogates", {"surrogates": [small(9)]}),
        (ConfigError, "surrogates=:", {"surrogates": {"": small()}}),
        (ConfigError, "surrogates", {"surrogates": {0: small(), "0": small()}}),
        (ConfigError, "seed=-1", {"seed": -1}),
        (ConfigError, "device=gpu", {"device": "gpu"}),
        *((ConfigError, "store=", {"store": of}) for of in (__file__, [])),
        (DataError, "data", {"data": [DATA]}),
        (DataError, "data.x", {"data": drawn_data(x=None)}),
        (DataError, "targets", {"targets": []}),
    ],
)
def test_evaluate_errors(
    error: type[RobustDiffusionError], key: str, given: dict[str, Any]
) -> None:
    right = {"model": small(), "data": DATA, "attacks": "random", "budget": BUDGET}
    with without_type_checks(), pytest.raises(error, match=f"^{re.escape(key)}") as caught:
        evaluate(**(right | given))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "budget", "key"),
    [
        *(("random", wrong, "") for wrong in (None, {"max_injected_nodes": 1}, (4, 5))),
        ("random", Budget(), "max_injected_nodes"),
        ("random_flip", Budget(5, 20), "edge_ratio"),
        ("grbcd", Budget(node_ratio=0.2), "edge_ratio"),
        ("pgd", Budget(edge_ratio=0.2), "max_injected_nodes"),
        ("tdgia", Budget(5), "max_edges_per_injected_node"),
        ("auto", Budget(5, 20, max_injected_edges=0), "max_injected_edges"),
    ],
)
@pytest.mark.parametrize("call", [evaluate, attack])
def test_budget_errors(call: Any, name: str, budget: Any, key: str) -> None:
    problem = rf"\.{key}: [^\n]*Budget\({key}=[^\n]*$" if key else ": expected a Budget, got "
    with without_type_checks(), pytest.raises(ConfigError, match=f"^budget{problem}"):
        call(small(), DATA, budget, name)


def test_evaluate_error_of_a_forward_pass() -> None:
    class Wrong(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x[:, :5] - x

    with pytest.raises(ConfigError, match=r"must match.*test_evaluate_model\.py:\d+\)"):
        evaluate(Wrong(), DATA, budget=BUDGET)


def test_evaluate_surrogates(gcn: nn.Module, gat: nn.Module) -> None:
    arguments: dict[str, Any] = {"attacks": PGD(num_steps=10), "budget": BUDGET}
    both = evaluate(gcn, DATA, surrogates=[gat, gat], **arguments)
    assert [of.name for of in both.attacks] == ["random", "pgd", "pgd/GAT", "pgd/GAT 2"]
    transferred = both["pgd/GAT"]
    assert transferred.made_on == "GAT"
    assert transferred.accuracy == accuracy(gcn, transferred.graph.to_data())
    own = evaluate(gat, DATA, **arguments)
    assert torch.equal(own["pgd"].graph.x, transferred.graph.x)
    flagged = "weaker_than_transfer" in [flag.code for flag in both["pgd"].flags]
    assert flagged == (transferred.accuracy < both["pgd"].accuracy)


class Fading(RandomInjection):
    """Attacks with the first seed alone."""

    name = "fading"

    def __call__(
        self, victim: Victim, task: Task, budget: Budget, generator: torch.Generator
    ) -> PerturbedGraph:
        if generator.initial_seed():
            return Idle()(victim, task)
        return super().__call__(victim, task, budget, generator)


def test_evaluate_seeds(gcn: nn.Module, tmp_path: Path) -> None:
    flags = partial(evaluate, gcn, DATA, attacks=Fading(), budget=BUDGET)
    alone, several = [flags(seed=seed) for seed in range(3)], flags(seeds=3)
    loaded = RobustnessReport.load(several.save(tmp_path / "report"))
    assert str(loaded) == str(several)
    assert measured_again(loaded, gcn)[1] == []
    for name in ("random", "fading"):
        rows, row = [report[name] for report in alone], several[name]
        assert list(row.by_seed) == [of_seed.accuracy for of_seed in rows]
        assert {*row.flags} == {flag for of_seed in rows for flag in of_seed.flags}
    codes = [{flag.code for flag in of["fading"].flags} for of in (alone[0], several)]
    assert ["no_effect" in of for of in codes] == [False, True]
    with pytest.raises(ConfigError, match=r"^seeds: expected at least 2"):
        _ = alone[0]["random"].seed_interval
    mean, low, high = several.worst.seed_interval
    assert low <= mean <= high
    assert mean == pytest.approx(sum(several.worst.by_seed) / 3)
    shown = f"{100 * mean:.2f} ({100 * low:.1f} .. {100 * high:.1f})"
    assert all(shown in text for text in (repr(several), str(several), several.to_markdown()))


def test_evaluate_flags_a_weaker_white_box(gcn: nn.Module) -> None:
    with pytest.raises(ConfigError, match=r"surrogates\[GCN\]"):
        evaluate(gcn, DATA, attacks=PGD(), budget=BUDGET, surrogates=[gcn])
    alike = copy.deepcopy(gcn)
    next(alike.parameters()).data.mul_(1.001)
    # Nothing is weaker than an attack that does nothing.
    attacks = {"own": Idle(), "tdgia": TDGIA(num_steps=20)}
    report = evaluate(gcn, DATA, attacks=attacks, budget=BUDGET, surrogates=[alike])
    assert report["tdgia/GCN"].accuracy < report["own"].accuracy
    assert {"no_effect", "weaker_than_transfer"} <= {flag.code for flag in report["own"].flags}


def test_evaluate_cache(gcn: nn.Module, tmp_path: Path) -> None:
    first = PGD(num_steps=3)
    arguments: dict[str, Any] = {"budget": BUDGET, "store": tmp_path / "store"}
    evaluate(gcn, DATA, attacks=first, **arguments)
    report = evaluate(gcn, DATA, attacks=[first, TDGIA(num_steps=2)], **arguments)
    assert [(of.name, of.reused) for of in report.attacks][1:] == [("pgd", True), ("tdgia", False)]
    again = evaluate(gcn, DATA, attacks=[first, TDGIA(num_steps=2)], **arguments)
    assert str(again) == str(report)
    others = [{"attacks": PGD(num_steps=4)}, {"budget": Budget(4, 4)}]
    others += [{"seed": 1}, {"targets": "val"}, {"attacker_knows": "labels"}]
    # The accuracies of the effort are of the true classes, even if the attacker predicts them.
    for changed in (*others, {"data": drawn_data(y=(DATA.y + 1) % CLASSES)}):
        other = evaluate(gcn, **{"data": DATA, "attacks": first, **arguments, **changed})
        assert not other["pgd"].reused
