import csv
import itertools
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor, nn

from robust_diffusion.attacks import SPEIT, TDGIA, Attack, Budget, PerturbedGraph, PGDModification
from robust_diffusion.cells import CellResult, evaluate_cell
from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import Heat
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GCN, GraphPDE, RobustGCN
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.robustness import BlackBox, WhiteBox, perturbed

Make = Callable[..., Any]
Run = Callable[..., CellResult]

NUM_LAYERS, NUM_STEPS = 2, 3


def gcn(in_channels: int, out_channels: int) -> nn.Module:
    return GCN(in_channels, 8, out_channels)


def heat(in_channels: int, out_channels: int) -> nn.Module:
    solver = Solver("euler", num_steps=NUM_STEPS)
    return GraphPDE(in_channels, 8, out_channels, flow=Heat, solver=solver, num_layers=NUM_LAYERS)


@pytest.fixture
def run(make_datamodule: Make, make_fit: Make, store: ArtifactStore, tmp_path: Path) -> Run:
    """Runs a cell of two attacks; keyword arguments replace its parts."""

    numbers = itertools.count()

    def cell(**parts: Any) -> CellResult:
        defaults = {
            "datamodule": make_datamodule(),
            "model": heat,
            "fit": make_fit(),
            "threat": BlackBox({"gcn": gcn}, make_fit()),
            "attacks": {"speit": SPEIT(num_steps=3), "tdgia": TDGIA(num_steps=3)},
            "budget": Budget(4, 2, (-0.5, 0.5)),
            "seed": 0,
            "directory": tmp_path / f"cell{next(numbers)}",
            "store": store,
        }
        given = defaults | parts
        names = [getattr(given["model"], "__name__", "model"), *given["attacks"]]
        cache_key = {
            "model": {"name": names[0]},
            "training": {},
            "threat": {"surrogates": {"gcn": {}, "other": {"name": "other"}}, "fit": {}},
            "attacks": {name: {"name": name} for name in names[1:]},
        }
        return evaluate_cell(**({"cache_key": cache_key} | given))

    return cell


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("nothing may be trained")


def test_a_threat_that_cannot_see_the_victim_is_refused_before_training(
    run: Run, store: ArtifactStore
) -> None:
    def scipy(in_channels: int, out_channels: int) -> nn.Module:
        solver = Solver("scipy_solver", rtol=1e-3, atol=1e-3, adjoint=True)
        return GraphPDE(in_channels, 8, out_channels, flow=Heat, solver=solver)

    with pytest.raises(ConfigError, match=r"threat\.adjoint=false: .*scipy_solver"):
        run(model=scipy, threat=WhiteBox(adjoint=False))
    assert not list(store.directory.rglob("model-*"))


class Keeping(nn.Module):
    """A user's model that goes by the first graph that it sees, or breaks another rule."""

    def __init__(self, in_channels: int, out_channels: int, *, rule: str) -> None:
        super().__init__()
        self.net, self.rule = GCN(in_channels, 8, out_channels), rule
        self.edges: Tensor | None = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.rule == "keeps a graph":
            self.edges = edge_index if self.edges is None else self.edges
            return self.net(x, self.edges)
        x = x.add_(0.3) if self.rule == "writes into" else x
        logits = self.net(x, edge_index)
        return logits.softmax(1) if self.rule == "returns probabilities" else logits


@pytest.mark.parametrize("rule", ["keeps a graph", "writes into", "returns probabilities"])
def test_a_model_of_ones_own_is_tried_before_it_is_trained(
    run: Run, store: ArtifactStore, rule: str
) -> None:
    with pytest.raises(ConfigError, match=f"^model: .*{rule}"):
        run(model=partial(Keeping, rule=rule))
    assert not list(store.directory.rglob("model-*"))


def test_a_cell_counts_times_and_spends(run: Run, tmp_path: Path) -> None:
    result = run()
    assert list(result.accuracy) == ["clean", "speit", "tdgia"]
    assert list(result.attacked) == ["gcn"]
    assert list(result.attacked["gcn"]) == ["clean", "speit", "tdgia"]
    assert result.mean_accuracy == result.accuracy
    for share in (*result.accuracy.values(), *result.attacked["gcn"].values()):
        assert 0 <= share <= 1
        assert share * 20 == pytest.approx(round(share * 20))  # of 20 target nodes
    assert result.epochs == 3
    assert result.nfe == NUM_LAYERS * NUM_STEPS
    assert set(result.seconds) == {"train", "surrogate gcn", "speit", "tdgia", "test"}
    assert all(seconds > 0 for seconds in result.seconds.values())
    for folder in ("victim", "surrogate-gcn"):
        assert len(list((tmp_path / "cell0" / folder).glob("*.ckpt"))) == 1
    assert list(result.spent) == ["speit", "tdgia"]
    for spent in (by_model["gcn"] for by_model in result.spent.values()):
        assert (spent["injected_nodes"], spent["injected_edges"] <= 8) == (4, True)
        assert spent["max_edges_per_injected_node"] <= 2
        low, high = spent["feature_range"]
        assert -0.5 <= low <= high <= 0.5


def test_without_attacks_no_surrogate_is_trained(run: Run, make_fit: Make) -> None:
    result = run(attacks={}, threat=BlackBox({"gcn": never}, make_fit()))
    assert list(result.accuracy) == ["clean"]
    assert result.attacked == result.spent == {}


def test_accuracies_are_those_of_the_best_victim_on_the_test_graphs(
    run: Run, make_datamodule: Make
) -> None:
    victims = []

    def kept(in_channels: int, out_channels: int) -> nn.Module:
        victims.append(heat(in_channels, out_channels))
        return victims[-1]

    datamodule = make_datamodule()
    result = run(model=kept, datamodule=datamodule)
    victim = victims[-1]
    victim.eval()
    for name in datamodule.test_names:
        graph = datamodule.test_graph(name)
        right = victim(graph.x, graph.edge_index).argmax(1)[graph.mask] == graph.y[graph.mask]
        assert result.accuracy[name] == pytest.approx(right.double().mean().item())


def test_the_victim_is_trained_without_the_attacks(run: Run) -> None:
    attacked, alone = run(), run(attacks={})
    assert attacked.accuracy["clean"] == alone.accuracy["clean"]
    assert attacked.val_accuracy == alone.val_accuracy


def test_every_victim_of_one_seed_faces_the_same_graphs(run: Run, make_datamodule: Make) -> None:
    first, second = make_datamodule(), make_datamodule()
    one, other = run(datamodule=first), run(datamodule=second, model=gcn)
    assert one.attacked == other.attacked
    assert one.spent == other.spent
    for name in ("speit", "tdgia"):
        assert torch.equal(first.test_graph(name).x, second.test_graph(name).x)
        assert torch.equal(first.test_graph(name).edge_index, second.test_graph(name).edge_index)
    third = make_datamodule()
    run(datamodule=third, seed=1)
    assert not torch.equal(first.test_graph("speit").x, third.test_graph("speit").x)


def test_what_was_computed_before_is_taken_from_the_store(
    run: Run, make_fit: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run()
    fit = make_fit()
    monkeypatch.setattr(type(fit), "__call__", never)
    monkeypatch.setattr(SPEIT, "__call__", never)
    again = run(fit=fit, attacks={"speit": SPEIT(num_steps=3)})
    assert first.reused == []
    assert again.reused == ["victim", "speit"]
    for key in ("accuracy", "files", "seconds"):
        assert getattr(again, key)["speit"] == getattr(first, key)["speit"]


def sampling(in_channels: int, out_channels: int) -> nn.Module:
    return RobustGCN(in_channels, 8, out_channels, sample_at_test=True)


@pytest.mark.parametrize("white_box", [False, True])
def test_a_model_that_samples_has_one_result_whatever_the_store_has(
    run: Run, make_fit: Make, white_box: bool
) -> None:
    threat = WhiteBox() if white_box else BlackBox({"gcn": sampling}, make_fit())
    first, again = (run(model=sampling, threat=threat) for _ in range(2))
    assert first.reused == []
    assert again.reused
    assert (again.accuracy, again.attacked) == (first.accuracy, first.attacked)


def test_with_several_surrogates_the_worst_and_the_mean_are_kept(
    run: Run, make_fit: Make, make_datamodule: Make
) -> None:
    datamodule = make_datamodule()
    threat = BlackBox({"gcn": gcn, "other": heat}, make_fit())
    result = run(threat=threat, datamodule=datamodule, attacks={"speit": SPEIT(num_steps=3)})
    assert datamodule.test_names == ["clean", "speit/gcn", "speit/other"]
    assert set(result.attacked) == {"gcn", "other"}
    assert set(result.spent["speit"]) == {"gcn", "other"}
    assert result.accuracy["speit"] <= result.mean_accuracy["speit"]
    assert result.accuracy["clean"] == result.mean_accuracy["clean"]


def test_no_surrogate_of_the_victims_architecture_is_the_victim(
    run: Run, make_fit: Make, caplog: pytest.LogCaptureFixture
) -> None:
    alone = {"attacks": {"speit": SPEIT(num_steps=3)}, "model": gcn}
    key = {"model": {}, "training": {}, "attacks": {"speit": {}}}
    key["threat"] = {"surrogates": {"gcn": {}}, "fit": {}}
    result = run(**alone, cache_key=key)
    assert result.same_weights == []
    assert result.files["speit"] != run(**alone, cache_key=key, seed=1).files["speit"]
    old = BlackBox({"gcn": gcn}, make_fit(), seeding="cell")
    assert run(**alone, cache_key=key, threat=old).same_weights == ["gcn"]
    assert "white box" in caplog.text


def test_a_white_box_attack_needs_no_surrogate(run: Run) -> None:
    result = run(threat=WhiteBox(), attacks={"speit": SPEIT(num_steps=3)})
    assert set(result.attacked) == {"victim"}
    assert result.attacked["victim"]["clean"] == result.accuracy["clean"]
    assert result.attacked["victim"]["speit"] == result.accuracy["speit"]
    assert set(result.seconds) == {"train", "speit", "test"}


class Idle(Attack):
    """Changes nothing."""

    kind = "injection"

    def __call__(self, model, data, target_nodes, budget, generator):  # type: ignore[no-untyped-def]
        return PerturbedGraph(data.x, data.edge_index, data.x.size(0))


class Worst(Idle):
    """Has two parts, and is handed the true classes."""

    is_worst_case = True
    labels: Tensor | None = None

    def __call__(self, model, data, target_nodes, budget, generator):  # type: ignore[no-untyped-def]
        self.labels = data.y
        parts = {"first": 0.5, "second": 0.25}
        return PerturbedGraph(data.x, data.edge_index, data.x.size(0), parts, "second")


def test_parts_of_an_attack_are_recorded_and_stored(run: Run, make_datamodule: Make) -> None:
    for reused in (False, True):
        attack = Worst()
        result = run(threat=WhiteBox(), attacks={"worst": attack, "speit": SPEIT(num_steps=3)})
        assert result.parts == {"worst": {"first": 0.5, "second": 0.25}}
        assert ("worst" in result.reused) == reused
        assert (attack.labels is None) == reused
    attack = Worst()
    attack.is_worst_case = False
    run(threat=WhiteBox(), attacks={"plain": attack})
    assert attack.labels is None


class Greedy(Idle):
    """Injects more than it may."""

    def __call__(self, model, data, target_nodes, budget, generator):  # type: ignore[no-untyped-def]
        n, extra = data.x.size(0), budget.max_injected_nodes + 1
        x = torch.cat([data.x, data.x.new_zeros(extra, data.x.size(1))])
        new = torch.arange(n, n + extra)
        edges = torch.stack([new, target_nodes[:1].expand(extra)])
        return PerturbedGraph(x, torch.cat([data.edge_index, edges, edges.flip(0)], 1), n)


class Sign(nn.Module):
    """One class where a node's neighbours sum up to more than 0, another elsewhere."""

    def __init__(self, out_channels: int, above: int, below: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(out_channels))
        self.classes = torch.tensor([below, above])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        near = torch.zeros(x.size(0)).index_add(0, edge_index[1], x.sum(1)[edge_index[0]])
        logits = torch.nn.functional.one_hot(self.classes[(near > 0).long()], self.scale.numel())
        return 100 * logits + self.scale


class Pushing(Greedy):
    """Injects one node next to each target, of features that all have one value."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, model, data, target_nodes, budget, generator):  # type: ignore[no-untyped-def]
        n, t = data.x.size(0), target_nodes.numel()
        x = torch.cat([data.x, data.x.new_full((t, data.x.size(1)), self.value)])
        edges = torch.stack([torch.arange(n, n + t), target_nodes])
        return PerturbedGraph(x, torch.cat([data.edge_index, edges, edges.flip(0)], 1), n)


def test_an_attack_weaker_than_chance_is_told_and_a_stronger_one_is_not(
    run: Run, make_datamodule: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Baseline(Pushing):
        """What is no baseline itself is compared with one."""

    datamodule = make_datamodule()
    shares = datamodule.graph.y[datamodule.target_nodes].bincount() / 20
    common, rare = int(shares.argmax()), int(shares.argmin())
    low, high = 100 * shares[rare].item(), 100 * shares[common].item()
    assert low < high

    def sign(in_channels: int, out_channels: int) -> nn.Module:
        return Sign(out_channels, above=common, below=rare)

    parts = {"model": sign, "threat": WhiteBox(), "budget": Budget(20, 1, (-100.0, 100.0))}
    weak, strong = Pushing(99.0), Pushing(-99.0)
    monkeypatch.setitem(perturbed.BASELINES, "injection", Baseline(-99.0))
    told = f"weaker than chance: {high:.2f} % against {low:.2f} %"
    assert told in run(attacks={"weak": weak}, **parts).warnings["weak"]
    monkeypatch.setitem(perturbed.BASELINES, "injection", Baseline(99.0))
    assert "weaker" not in str(run(attacks={"strong": strong}, **parts).warnings)


def test_an_attack_that_breaks_its_budget_is_told(run: Run) -> None:
    result = run(attacks={"greedy": Greedy()})
    assert "budget_overspent" in result.flags["greedy"]
    (warning, *_) = result.warnings["greedy"]
    assert "5" in warning
    assert "4" in warning


class Overreaching(PGDModification):
    """Takes steps of epsilon without saying so."""

    unbounded: Mapping[str, str] = {}


@pytest.mark.parametrize("cls", [PGDModification, Overreaching])
def test_a_limit_that_the_reading_waives_is_told_and_not_broken(
    run: Run, cls: type[PGDModification]
) -> None:
    attacks = {"pgd": cls(variant="step", num_steps=5)}
    result = run(attacks=attacks, budget=Budget(0, 0, (-0.94, 0.94), epsilon=0.1))
    assert result.declared["epsilon"] == 0.1
    assert result.spent["pgd"]["gcn"]["largest_feature_change"] > 0.2
    told = any("change by too much" in line for line in result.warnings.get("pgd", []))
    assert told is (cls is Overreaching)
    waived = {"epsilon": "length of a step", "edge_ratio": "share of all edges"}
    assert result.unbounded == ({} if cls is Overreaching else {"pgd": waived})


def test_test_accuracies_reach_the_logger(run: Run, tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, name="", version="curves")
    result = run(logger=logger)
    with (tmp_path / "curves" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {"train_loss", "val_accuracy"} <= set(rows[0])
    for name, accuracy in result.accuracy.items():
        (logged,) = [float(row[f"test/{name}"]) for row in rows if row[f"test/{name}"]]
        assert logged == pytest.approx(accuracy, abs=1e-6)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"seed": -1}, r"seed=-1"),
        ({"seed": 2**32}, r"seed=4294967296"),
        ({"attacks": {"../x": SPEIT()}}, r"attacks=\.\./x: is no name"),
        ({"budget": Budget(1, 21, (-1.0, 1.0))}, r"injected_node=21: .* 20 target"),
    ],
)
def test_what_does_not_fit_is_refused_before_training(
    run: Run, make_fit: Make, monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any], words: str
) -> None:
    fit = make_fit()
    monkeypatch.setattr(type(fit), "__call__", never)
    with pytest.raises(ConfigError, match=words):
        run(fit=fit, **parts)
