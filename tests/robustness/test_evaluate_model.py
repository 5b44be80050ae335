import copy
import re
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import models as pyg

from robust_diffusion import (
    PGD,
    TDGIA,
    Attack,
    AutoInjection,
    Budget,
    GraphDataModule,
    NodeClassification,
    PerturbedGraph,
    RandomFlip,
    attack,
    evaluate,
    models,
)
from robust_diffusion.cells import evaluate_cell
from robust_diffusion.errors import AttackError, ConfigError, DataError, RobustDiffusionError
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.robustness import WhiteBox
from robust_diffusion.system.artifact import read_artifact
from robust_diffusion.system.hashes import state_hash
from robust_diffusion.training.fit_model import fit
from tests.drawn import CLASSES, FEATURES, NODES, drawn_data
from tests.graphs import without_type_checks

BUDGET = Budget(max_injected_nodes=4, max_edges_per_injected_node=5)
DATA = drawn_data()

PYG = ("GCN", "GAT", "GIN", "GraphSAGE")
PARTS = ("GRBModel", "Guard", "RawFeatures", "Rewiring")
OWN = [name for name in models.__all__ if name not in PARTS]
MODELS = [
    *[pytest.param(partial(getattr(pyg, n), FEATURES, 8, 2, CLASSES), id=f"pyg {n}") for n in PYG],
    *[
        pytest.param(
            partial(getattr(models, name), FEATURES, 8, CLASSES),
            id=name,
            marks=[pytest.mark.slow] if name in ("GraphPDE", "BeltramiGuard") else [],
        )
        for name in OWN
    ],
    pytest.param(
        partial(models.GraphPDE, FEATURES, 8, CLASSES, flow="heat", num_layers=2), id="heat"
    ),
]


class Noted(Attack):
    """Changes nothing, and notes what it is told."""

    name = "noted"
    kind = "injection"
    labels: ClassVar[list[Any]] = []

    def __call__(
        self, model: Any, data: Data, target_nodes: Tensor, budget: Budget, generator: Any
    ) -> PerturbedGraph:
        self.labels.append(data.y)
        return PerturbedGraph(data.x, data.edge_index, data.num_nodes)


@pytest.fixture(scope="module")
def gcn() -> nn.Module:
    """PyG's, trained for a moment."""
    torch.manual_seed(0)
    model = pyg.GCN(FEATURES, 8, 2, CLASSES)
    fit(model, DATA, max_epochs=30, accelerator="cpu")
    return model


@pytest.fixture(scope="module")
def gat() -> nn.Module:
    torch.manual_seed(1)
    model = pyg.GAT(FEATURES, 8, 2, CLASSES)
    fit(model, DATA, max_epochs=30, accelerator="cpu")
    return model


def accuracy(model: nn.Module, data: Data) -> float:
    model.eval()
    with torch.no_grad():
        right = model(data.x, data.edge_index).argmax(1) == data.y
    return float(right[data.test_mask].double().mean())


@pytest.mark.parametrize("build", MODELS)
def test_any_model_is_evaluated_as_anybody_would_evaluate_it(
    build: Callable[[], nn.Module],
) -> None:
    torch.manual_seed(0)
    model, data = build(), drawn_data()
    model.train()
    before, state = data.clone(), state_hash(model.state_dict())
    attacks = [AutoInjection(num_steps=4), PGD(num_steps=2)]
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


def test_an_attack_hurts_a_trained_model_more_than_chance(gcn: nn.Module) -> None:
    report = evaluate(gcn, DATA, attacks=AutoInjection(num_steps=30), budget=BUDGET)
    assert report.clean_accuracy > 0.6
    assert report["auto"].accuracy < report["random"].accuracy
    assert report.worst is report["auto"]
    assert report.budget.limits == (DATA.x.min().item(), DATA.x.max().item())


def test_the_numbers_are_those_of_a_cell(
    make_datamodule: Callable[..., Any], make_fit: Callable[..., Any], tmp_path: Path
) -> None:
    def build(in_channels: int, out_channels: int) -> nn.Module:
        return models.GCN(in_channels, 8, out_channels)

    made, store = {"pgd": PGD(num_steps=3)}, ArtifactStore(tmp_path / "store")
    cell = evaluate_cell(
        datamodule=make_datamodule(),
        model=build,
        fit=make_fit(),
        threat=WhiteBox(),
        attacks=made,
        budget=BUDGET,
        seed=5,
        directory=tmp_path,
        store=store,
        cache_key={"model": {}, "training": {}, "threat": {}, "attacks": {"pgd": {}}},
    )
    model = build(16, 7)
    model.load_state_dict(read_artifact(store.directory / cell.files["victim"]).tensors)
    report = evaluate(model, make_datamodule(), attacks=made, budget=BUDGET, seed=5)
    assert report.clean_accuracy == cell.accuracy["clean"]
    assert report["pgd"].accuracy == cell.accuracy["pgd"]
    assert asdict(report["pgd"].spent) == cell.spent["pgd"]["victim"]
    assert [flag.code for flag in report["pgd"].flags] == cell.flags.get("pgd", [])
    kept = read_artifact(store.directory / cell.files["pgd"]).tensors
    assert torch.equal(report["pgd"].graph.x[200:], kept["injected_x"])
    assert torch.equal(report["pgd"].graph.edge_index, kept["edge_index"])


def test_a_report_names_graph_and_weights(gcn: nn.Module) -> None:
    data = GraphDataModule.from_data(DATA, name="mine")
    reports = [
        evaluate(model, on, attacks="random", budget=BUDGET, nodes=nodes)
        for model, on, nodes in (
            (gcn, data, "test"),
            (gcn, DATA, "test"),
            (pyg.GCN(FEATURES, 8, 2, CLASSES), DATA, "val"),
        )
    ]
    assert [report.dataset for report in reports] == ["mine", "", ""]
    first, same, other = (report.clean_graph for report in reports)
    assert first == same != other
    first, same, other = (report.weights for report in reports)
    assert first == same == state_hash(gcn.state_dict()) != other


def test_one_attack_alone_gives_the_graph_of_the_report(gcn: nn.Module) -> None:
    made = PGD(num_steps=3)
    report = evaluate(gcn, DATA, attacks=made, budget=BUDGET, seed=3)
    alone = attack(gcn, DATA, BUDGET, made, seed=3)
    assert torch.equal(alone.x, report["pgd"].graph.x)
    assert torch.equal(alone.edge_index, report["pgd"].graph.edge_index)
    other = attack(gcn, DATA, BUDGET, made, seed=4)
    assert not torch.equal(alone.edge_index, other.edge_index)
    assert alone.to_data().test_mask.sum() == 40


def test_modifications_have_their_own_control(gcn: nn.Module) -> None:
    report = evaluate(gcn, DATA, attacks=["dice", PGD(num_steps=1)], budget=BUDGET)
    controls = {of.name for of in report.attacks if of.is_control}
    assert controls == {"random_flip", "random"}
    assert report["dice"].spent.injected_nodes == 0
    assert report["dice"].spent.added_edges > 0


@pytest.mark.parametrize("labels", ["predicted", "true"])
def test_an_attack_gets_the_true_classes_only_if_asked(gcn: nn.Module, labels: Any) -> None:
    Noted.labels.clear()
    attack(gcn, DATA, BUDGET, Noted(), labels=labels)
    (told,) = Noted.labels
    assert told is None if labels == "predicted" else torch.equal(told, DATA.y)


def test_attacks_are_transferred_from_surrogates(gcn: nn.Module, gat: nn.Module) -> None:
    arguments: dict[str, Any] = {"attacks": PGD(num_steps=10), "budget": BUDGET}
    both = evaluate(gcn, DATA, surrogates=[gat, gat], **arguments)
    assert [of.name for of in both.attacks] == ["random", "pgd", "pgd/GAT", "pgd/GAT 2"]
    transferred = both["pgd/GAT"]
    assert (transferred.made_on, transferred.accuracy) == (
        "GAT",
        accuracy(gcn, transferred.graph.to_data()),
    )
    own = evaluate(gat, DATA, **arguments)
    assert torch.equal(own["pgd"].graph.x, transferred.graph.x)
    flagged = "weaker_than_transfer" in [flag.code for flag in both["pgd"].flags]
    assert flagged == (transferred.accuracy < both["pgd"].accuracy)


def test_a_weaker_white_box_is_flagged(gcn: nn.Module) -> None:
    with pytest.raises(ConfigError, match=r"surrogates\[GCN\]"):
        evaluate(gcn, DATA, attacks=PGD(), budget=BUDGET, surrogates=[gcn])
    alike = copy.deepcopy(gcn)
    next(alike.parameters()).data.mul_(1.001)
    # Nothing is weaker than an attack that does nothing.
    report = evaluate(
        gcn,
        DATA,
        attacks={"own": Noted(), "tdgia": TDGIA(num_steps=20)},
        budget=BUDGET,
        surrogates=[alike],
    )
    assert report["tdgia/GCN"].accuracy < report["own"].accuracy
    assert {"no_effect", "weaker_than_transfer"} <= {flag.code for flag in report["own"].flags}


def test_adaptive_follows_the_declared_form() -> None:
    torch.manual_seed(0)
    model = models.GNNGuard(FEATURES, 8, CLASSES)
    graphs = [
        attack(model, DATA, BUDGET, PGD(num_steps=3), threat=threat).x
        for threat in ("white_box", "adaptive")
    ]
    assert not torch.equal(*graphs)


def test_a_call_that_was_cut_off_goes_on(gcn: nn.Module, tmp_path: Path) -> None:
    first = PGD(num_steps=3)
    arguments: dict[str, Any] = {"budget": BUDGET, "store": tmp_path / "store"}
    evaluate(gcn, DATA, attacks=first, **arguments)
    report = evaluate(gcn, DATA, attacks=[first, TDGIA(num_steps=2)], **arguments)
    assert {of.name: of.reused for of in report.attacks} == {
        "random": True,
        "pgd": True,
        "tdgia": False,
    }
    again = evaluate(gcn, DATA, attacks=[first, TDGIA(num_steps=2)], **arguments)
    assert str(again) == str(report)
    for changed in (
        {"attacks": PGD(num_steps=4)},
        {"seed": 1},
        {"nodes": "val"},
        {"labels": "true"},
        {"budget": Budget(4, 4)},
    ):
        other = evaluate(gcn, DATA, **{"attacks": first, **arguments, **changed})
        assert not other["pgd"].reused


def test_a_datamodule_is_evaluated_as_it_was_trained_on(gcn: nn.Module) -> None:
    own = drawn_data(x=100 * DATA.x)
    datamodule = GraphDataModule.from_data(own, normalize="arctan")
    report = evaluate(gcn, datamodule, attacks=PGD(num_steps=1), budget=BUDGET)
    normalised = drawn_data(x=datamodule.graph.x)
    assert report.clean_accuracy == accuracy(gcn, normalised)
    unsplit = drawn_data(train_mask=None, val_mask=None, test_mask=None)
    easy = GraphDataModule.from_data(unsplit, difficulty="easy")
    assert evaluate(gcn, easy, attacks="random", budget=BUDGET).num_targets == NODES // 10


def test_a_lightning_module_is_evaluated_by_its_model(gcn: nn.Module) -> None:
    wrapped = NodeClassification(gcn, num_classes=CLASSES)
    reports = [evaluate(of, DATA, attacks="random", budget=BUDGET) for of in (gcn, wrapped)]
    assert str(reports[0]) == str(reports[1])


def test_only_the_nodes_under_attack_need_a_split(gcn: nn.Module) -> None:
    data = drawn_data(train_mask=None, val_mask=None)
    given = {"attacks": "random", "budget": BUDGET}
    by_name, by_mask, by_number = (
        evaluate(gcn, data, nodes=nodes, **given)
        for nodes in ("test", data.test_mask, data.test_mask.nonzero().squeeze(1))
    )
    assert str(by_name) == str(by_mask) == str(by_number)
    assert evaluate(gcn, data, nodes="all", **given).num_targets == NODES


@pytest.mark.parametrize("budget", [Budget(0, 5), Budget(4, 0), Budget(4, 5, max_injected_edges=0)])
def test_an_empty_budget_leaves_the_clean_accuracy(gcn: nn.Module, budget: Budget) -> None:
    attacks = [AutoInjection(num_steps=4), PGD(num_steps=2)]
    report = evaluate(gcn, DATA, attacks=attacks, budget=budget)
    for of in report.attacks:
        assert of.accuracy == report.clean_accuracy
        assert list(of.flags) == []
        assert of.spent.injected_edges == 0


def test_a_model_in_float64_is_attacked_in_float64(gcn: nn.Module) -> None:
    torch.manual_seed(0)
    model = pyg.GCN(FEATURES, 8, 2, CLASSES).double()
    graph = attack(model, drawn_data(x=DATA.x.double()), BUDGET, PGD(num_steps=1)).to_data()
    assert graph.x.dtype == torch.float64


@pytest.mark.gpu
def test_a_model_stays_where_it_is() -> None:
    model = pyg.GCN(FEATURES, 8, 2, CLASSES).cuda()
    arguments: dict[str, Any] = {"attacks": PGD(num_steps=1), "budget": BUDGET}
    there, here = (
        evaluate(model, DATA, **arguments),
        evaluate(model, DATA, device="cpu", **arguments),
    )
    assert next(model.parameters()).is_cuda
    assert there.graph.x.device == here.graph.x.device == torch.device("cpu")


def test_an_attack_that_cannot_be_names_the_surrogate(gcn: nn.Module, gat: nn.Module) -> None:
    # PyG's GAT takes edge weights and ignores them.
    with pytest.raises(
        AttackError, match=r"attack=prbcd: .*not differentiable in the edge weights"
    ):
        evaluate(gat, DATA, attacks="prbcd", budget=BUDGET)
    with pytest.raises(AttackError, match=r"surrogates\[GAT\]: attack=prbcd"):
        evaluate(gcn, DATA, attacks="prbcd", budget=BUDGET, surrogates=[gat], threat="black_box")


def small(in_channels: int = FEATURES, out_channels: int = CLASSES, **options: Any) -> nn.Module:
    return pyg.GCN(in_channels, 4, 2, out_channels, **options)


def without(*keys: str) -> Data:
    return drawn_data(**dict.fromkeys(keys))


WRONG_MODELS = [pyg.GCN, "gcn.pt", nn.Linear(8, 7), small(9), small(8, 3), small(cached=True)]

WRONG_DATA = [
    (None, "data"),
    ([DATA], "data"),
    *((without(key), f"data.{key}") for key in ("x", "y", "test_mask")),
    (drawn_data(edge_index=DATA.edge_index[:, ::2]), "data.edge_index"),
    (drawn_data(edge_weight=torch.rand(DATA.num_edges)), "data.edge_weight"),
    (drawn_data(x=DATA.x / 0), "data"),
    (drawn_data(y=DATA.y / 2), "data"),
    (drawn_data(y=DATA.y[1:]), "data"),
    (drawn_data(test_mask=DATA.test_mask[1:]), "data.test_mask"),
    (drawn_data(test_mask=DATA.test_mask.float()), "data.test_mask"),
]

WRONG_NODES = [
    ("tests", "data.tests_mask"),
    *((nodes, "nodes") for nodes in (None, [], [NODES], torch.ones(NODES), torch.ones(99) > 0)),
]

WRONG_OPTIONS: list[tuple[str, Any, str]] = [
    *(("model", model, "model") for model in WRONG_MODELS),
    *(("budget", budget, "budget") for budget in (None, {"max_injected_nodes": 1})),
    ("budget", Budget(1, 41), "budget.max_edges_per_injected_node=41"),
    ("attacks", "pdg", "attacks=pdg"),
    *(("attacks", attacks, "attacks") for attacks in ([], PGD, [PGD], 3, [PGD(), "pgd"])),
    *(("attacks", of, "attacks") for of in ({"random": PGD()}, RandomFlip(add_ratio=0.1))),
    ("labels", "guessed", "labels=guessed"),
    ("threat", "grey_box", "threat=grey_box"),
    ("threat", "black_box", "surrogates"),
    *(("surrogates", of, "surrogates") for of in (small(), ["gcn"], [small(9)])),
    *(("seed", seed, f"seed={seed}") for seed in (-1, 2**32, 0.5)),
    *(("device", device, f"device={device}") for device in ("gpu", "cuda:99")),
    ("store", __file__, "store="),
]

WRONG = [
    *((ConfigError, *case) for case in WRONG_OPTIONS),
    *((DataError, "data", *case) for case in WRONG_DATA),
    *((DataError, "nodes", *case) for case in WRONG_NODES),
]


@pytest.mark.parametrize(("error", "option", "value", "key"), WRONG)
def test_a_wrong_call_is_told_in_one_line(
    error: type[RobustDiffusionError], option: str, value: Any, key: str
) -> None:
    given = {"model": small(), "data": DATA, "attacks": "random", "budget": BUDGET}
    with without_type_checks(), pytest.raises(error, match=f"^{re.escape(key)}") as caught:
        evaluate(**(given | {option: value}))
    assert len(str(caught.value).splitlines()) == 1
