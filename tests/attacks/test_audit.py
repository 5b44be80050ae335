import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks import SPEIT, TDGIA, Budget
from robust_diffusion.attacks.audit import Violation, audit, perturbed_files, read_perturbed
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.store import Artifact, ArtifactStore
from tests.attacks.graphs import mean_of_neighbours, small_graph
from tests.data.files import Bomb

N, WIDTH = 40, 4
TARGETS = torch.arange(0, N, 2)
INJECTION = {
    "max_injected_nodes": 3,
    "max_edges_per_injected_node": 4,
    "max_injected_edges": 12,
    "feature_limits": (-0.9, 0.9),
}
MODIFICATION = {
    "node_ratio": 0.25,
    "edge_ratio": 0.2,
    "epsilon": 0.1,
    "feature_limits": (-0.9, 0.9),
}


@dataclass(frozen=True, eq=False)
class G:
    x: Tensor
    edge_index: Tensor


def both_ways(edges: list[tuple[int, int]]) -> Tensor:
    forward = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    return torch.cat([forward, forward.flip(0)], 1)


def clean_graph() -> G:
    """A ring with chords, features within 0.8 of 0."""
    edges = [(u, (u + 1) % N) for u in range(N)] + [(u, u + 10) for u in range(0, 30, 3)]
    x = torch.rand(N, WIDTH, generator=torch.Generator().manual_seed(0)) * 1.6 - 0.8
    return G(x, both_ways(edges))


CLEAN = clean_graph()


def injected() -> G:
    """Three new nodes with four edges each to targets, features up to the limits."""
    x = torch.full((3, WIDTH), 0.9)
    x[1] = -0.9
    edges = [(N + i, int(TARGETS[4 * i + j])) for i in range(3) for j in range(4)]
    return G(torch.cat([CLEAN.x, x]), torch.cat([CLEAN.edge_index, both_ways(edges)], 1))


GOOD = injected()


def modified() -> G:
    """Five of twenty targets changed by 0.1, one edge removed and one added at targets."""
    x = CLEAN.x.clone()
    x[TARGETS[:5]] += 0.1
    x[TARGETS[:5]] = x[TARGETS[:5]].clamp(-0.9, 0.9)
    return G(x, with_edges(without_edges(CLEAN.edge_index, (0, 1)), (2, 20)))


def without_edges(edge_index: Tensor, *edges: tuple[int, int]) -> Tensor:
    for u, v in edges:
        drop = ((edge_index == torch.tensor([[u], [v]])).all(0)) | (
            (edge_index == torch.tensor([[v], [u]])).all(0)
        )
        assert drop.sum() == 2
        edge_index = edge_index[:, ~drop]
    return edge_index


def with_edges(edge_index: Tensor, *edges: tuple[int, int]) -> Tensor:
    return torch.cat([edge_index, both_ways(list(edges))], 1)


def inject_audit(graph: G, **limits: Any) -> list[Violation]:
    return audit(CLEAN, graph, kind="injection", target_nodes=TARGETS, **(INJECTION | limits))


def modify_audit(graph: G, **limits: Any) -> list[Violation]:
    return audit(CLEAN, graph, kind="modification", target_nodes=TARGETS, **(MODIFICATION | limits))


def codes(violations: list[Violation]) -> set[str]:
    for violation in violations:
        assert "\n" not in violation.message
        assert len(violation.message) < 250
    names = [violation.code for violation in violations]
    assert len(set(names)) == len(names)
    return set(names)


def changed(graph: G, **parts: Tensor) -> G:
    return replace(graph, **parts)


def set_feature(graph: G, node: int, value: float, column: int = 1) -> G:
    x = graph.x.clone()
    x[node, column] = value
    return changed(graph, x=x)


def add_directed(graph: G, *edges: tuple[int, int]) -> G:
    more = torch.tensor(edges, dtype=torch.int64).t()
    return changed(graph, edge_index=torch.cat([graph.edge_index, more], 1))


def add_edges(graph: G, *edges: tuple[int, int]) -> G:
    return changed(graph, edge_index=with_edges(graph.edge_index, *edges))


def add_nodes(graph: G, count: int) -> G:
    return changed(graph, x=torch.cat([graph.x, torch.zeros(count, WIDTH)]))


# What every graph must be: planted into a good injection and into a good modification.

FORM: dict[str, tuple[Callable[[G], G], str]] = {
    "features_dtype": (lambda g: changed(g, x=g.x.double()), "type torch.float64"),
    "edges_dtype": (
        lambda g: changed(g, edge_index=g.edge_index.int()),
        "type torch.int32, not torch.int64",
    ),
    "not_finite": (
        lambda g: set_feature(set_feature(g, g.x.size(0) - 1, float("nan")), 0, float("nan")),
        r"2 features are NaN or infinite, the first at node 0, node \d+;",
    ),
    "index_out_of_range": (
        lambda g: add_edges(g, (0, 99)),
        r"2 edges name a node that is not there, the first 0-99, 99-0; nodes are 0\.\.",
    ),
    "self_loop": (
        lambda g: add_directed(g, (7, 7), (5, 5)),
        "2 edges run from a node to itself, the first at node 7, node 5",
    ),
    "duplicate_edge": (
        lambda g: add_edges(g, (2, 3)),
        "2 edges are listed before, the first 2-3, 3-2; each",
    ),
    "one_way_edge": (
        lambda g: changed(g, edge_index=g.edge_index[:, 1:]),
        r"1 edges lack their reverse, the first \d+-\d+; the graph",
    ),
}


@pytest.mark.parametrize("code", FORM)
@pytest.mark.parametrize("kind", ["injection", "modification"])
def test_what_is_no_simple_graph_is_found(code: str, kind: str) -> None:
    plant, words = FORM[code]
    found = inject_audit(plant(GOOD)) if kind == "injection" else modify_audit(plant(modified()))
    (violation,) = [violation for violation in found if violation.code == code]
    assert violation.level == "error"
    assert re.search(words, violation.message)
    # NaN is another feature, of a node that may be no target, and one more than allowed.
    consequences = {
        "not_finite": {"original_features"}
        if kind == "injection"
        else {"changed_nodes", "changed_elsewhere"}
    }
    assert codes(found) - {code} == consequences.get(code, set())


@pytest.mark.parametrize("kind", ["injection", "modification"])
def test_what_is_no_matrix_is_found(kind: str) -> None:
    good = injected() if kind == "injection" else modified()
    for x in (good.x.flatten(), good.x[:, :3], good.x[None]):
        found = audit(CLEAN, changed(good, x=x), kind=kind)  # type: ignore[arg-type]
        assert codes(found) == {"features_shape"}
    for edges in (good.edge_index.t(), good.edge_index[0], good.edge_index[:1]):
        found = audit(CLEAN, changed(good, edge_index=edges), kind=kind)  # type: ignore[arg-type]
        assert "edges_shape" in codes(found)
    found = audit(CLEAN, changed(good, edge_index=good.edge_index.float()), kind=kind)  # type: ignore[arg-type]
    assert "edges_dtype" in codes(found)


# Injections


def test_a_good_injection_and_none_pass() -> None:
    assert inject_audit(GOOD) == []
    assert inject_audit(CLEAN) == []
    assert inject_audit(CLEAN, max_injected_nodes=0, max_injected_edges=0) == []


def test_the_order_of_the_edges_does_not_matter() -> None:
    good = injected()
    order = torch.randperm(good.edge_index.size(1), generator=torch.Generator().manual_seed(1))
    assert inject_audit(changed(good, edge_index=good.edge_index[:, order].flip(0))) == []


def test_limits_that_are_not_given_are_not_looked_at() -> None:
    many = add_edges(add_nodes(injected(), 2), (N, 0 + 20), (N, 22), (N + 3, 0))
    assert audit(CLEAN, many, kind="injection", feature_limits=(-1, 1)) == []
    assert audit(CLEAN, add_edges(CLEAN, (1, 5), (2, 5)), kind="modification", edge_ratio=0.2) == []


BREACHES: dict[str, tuple[Callable[[], list[Violation]], list[str]]] = {
    "injected_nodes": (lambda: inject_audit(add_nodes(GOOD, 2)), ["5 nodes", "at most 3"]),
    "edges_per_injected_node": (
        lambda: inject_audit(
            add_edges(GOOD, (N + 1, 0), (N + 1, 2), (N + 2, 0)), max_injected_edges=None
        ),
        ["2 injected nodes", "node 41 (6), node 42 (5);", "at most 4"],
    ),
    "original_features": (
        lambda: inject_audit(set_feature(set_feature(GOOD, 8, 0.1), 9, 0.2)),
        ["2 original nodes", "node 8, node 9;"],
    ),
    "original_edges_removed": (
        lambda: inject_audit(
            changed(GOOD, edge_index=without_edges(GOOD.edge_index, (2, 3), (0, 39)))
        ),
        ["2 edges", "0-39, 2-3;"],
    ),
    "original_edges_added": (lambda: inject_audit(add_edges(GOOD, (2, 20))), ["1 edges", "2-20;"]),
    "changed_nodes": (
        lambda: modify_audit(set_feature(modified(), 20, 0.0, column=0), epsilon=2),
        ["6 nodes", "node 0, node 2, node 4, ...;", "at most 5 may (0.25 of 20)"],
    ),
    "changed_elsewhere": (
        lambda: modify_audit(set_feature(CLEAN, 7, CLEAN.x[7, 1].item() + 0.05)),
        ["1 nodes", "the first node 7;"],
    ),
    "epsilon": (
        lambda: modify_audit(
            set_feature(
                set_feature(modified(), 0, CLEAN.x[0, 1].item() + 0.11),
                4,
                CLEAN.x[4, 1].item() - 0.25,
            )
        ),
        ["2 features", "node 0 (0.11), node 4 (0.25);", "at most 0.1"],
    ),
    "flipped_elsewhere": (
        lambda: modify_audit(add_edges(CLEAN, (1, 5), (2, 5))),
        ["1 edges", "the first 1-5;"],
    ),
}


@pytest.mark.parametrize("code", BREACHES)
def test_a_breach_is_named_with_its_offenders(code: str) -> None:
    found, words = BREACHES[code]
    (violation,) = found()
    assert violation.code == code
    assert all(word in violation.message for word in words)


def test_edges_between_injected_nodes_count_for_both_and_once_in_all() -> None:
    graph = add_edges(injected(), (N, N + 1))
    found = {violation.code: violation.message for violation in inject_audit(graph)}
    assert set(found) == {"edges_per_injected_node", "injected_edges"}
    assert "node 40 (5), node 41 (5);" in found["edges_per_injected_node"]
    assert "13 edges" in found["injected_edges"]
    assert inject_audit(graph, max_edges_per_injected_node=5, max_injected_edges=13) == []


@pytest.mark.parametrize("value", [0.95, -0.95, float("inf"), 0.9 + 1e-6])
def test_a_feature_out_of_range_is_found(value: float) -> None:
    found = inject_audit(set_feature(GOOD, N + 2, value))
    (message,) = [v.message for v in found if v.code == "feature_limits"]
    assert "1 features" in message
    assert "node 42 (" in message
    assert "-0.9..0.9" in message


def test_without_limits_those_of_the_clean_graph_count() -> None:
    low, high = CLEAN.x.min().item(), CLEAN.x.max().item()
    x = torch.cat([CLEAN.x, torch.tensor([[low, high, 0.0, 0.0]]).repeat(3, 1)])
    graph = changed(injected(), x=x)
    for value, expected in ((high, set()), (high + 1e-4, {"feature_limits"})):
        found = inject_audit(set_feature(graph, N, value), feature_limits=None)
        assert codes(found) == expected


@pytest.mark.parametrize("limits", [(-0.94, 0.943), (-0.1, 0.7), (0.1, 0.3), (-0.96, 0.89)])
def test_a_limit_counts_as_the_features_type_rounds_it(limits: tuple[float, float]) -> None:
    graph = injected()
    x = torch.cat([CLEAN.x, torch.tensor([limits]).repeat(3, WIDTH // 2)])
    assert inject_audit(changed(graph, x=x), feature_limits=limits) == []
    for value, toward in ((x.max(), 10.0), (x.min(), -10.0)):
        beyond = torch.nextafter(value, torch.tensor(toward)).item()
        graph = set_feature(changed(graph, x=x), N, beyond)
        assert codes(inject_audit(graph, feature_limits=limits)) == {"feature_limits"}


def test_the_smallest_change_of_an_original_feature_is_found() -> None:
    value = torch.nextafter(CLEAN.x[3, 1], torch.tensor(1.0)).item()
    assert codes(inject_audit(set_feature(injected(), 3, value))) == {"original_features"}


def test_missing_nodes_are_found() -> None:
    keep = (CLEAN.edge_index < N - 1).all(0)
    graph = G(CLEAN.x[:-1], CLEAN.edge_index[:, keep])
    assert codes(inject_audit(graph)) == {"num_nodes", "original_edges_removed"}
    (found,) = modify_audit(graph)  # node 39 is next to targets, so its edges may go
    assert found.code == "num_nodes"
    assert "39 nodes; the clean graph has 40" in found.message


def test_an_edge_to_another_node_is_a_warning() -> None:
    graph = add_edges(injected(), (N + 1, 7), (N + 2, 9))
    found = inject_audit(graph, max_edges_per_injected_node=5, max_injected_edges=None)
    assert [(violation.code, violation.level) for violation in found] == [
        ("not_a_target", "warning")
    ]
    assert "7-41, 9-42" in found[0].message
    limits = INJECTION | {"max_edges_per_injected_node": 5, "max_injected_edges": None}
    assert audit(CLEAN, graph, kind="injection", **limits) == []  # type: ignore[arg-type]


# Modifications


def test_a_good_modification_passes() -> None:
    assert modify_audit(modified()) == []
    assert modify_audit(CLEAN) == []


def test_a_modification_is_no_injection_and_the_other_way_round() -> None:
    assert codes(inject_audit(modified())) == {
        "original_features",
        "original_edges_added",
        "original_edges_removed",
    }
    assert codes(modify_audit(injected())) == {"num_nodes", "flipped_edges"}


@pytest.mark.parametrize(("ratio", "count", "allowed"), [(0.29, 100, 29), (0.1, 30, 3), (1, 7, 7)])
def test_shares_are_exact_in_decimals(ratio: float, count: int, allowed: int) -> None:
    clean = G(torch.zeros(count, 1), torch.empty(2, 0, dtype=torch.int64))
    for changes, expected in ((allowed, set()), (allowed + 1, {"changed_nodes"})):
        if changes <= count:
            x = torch.zeros(count, 1)
            x[:changes] = 0.1
            found = audit(
                clean,
                G(x, clean.edge_index),
                kind="modification",
                node_ratio=ratio,
                feature_limits=(-1, 1),
            )
            assert codes(found) == expected


@given(
    st.floats(-0.75, 0.75, width=32),
    st.sampled_from([0.01, 0.1, 0.3, 1.0]),
    st.sampled_from([-1, 1]),
)
def test_rounding_is_no_change_beyond_epsilon(value: float, epsilon: float, sign: int) -> None:
    clean = G(torch.full((1, 1), value), torch.empty(2, 0, dtype=torch.int64))
    moved = clean.x + sign * torch.tensor(epsilon)  # rounded in float32
    for factor, expected in ((1, set()), (1.00001, {"epsilon"})):
        graph = changed(clean, x=clean.x + (moved - clean.x) * factor)
        found = audit(clean, graph, kind="modification", epsilon=epsilon, feature_limits=(-2, 2))
        assert codes(found) == expected


def test_too_many_flipped_edges_are_found() -> None:
    at_targets = 0
    for u, v in CLEAN.edge_index.t().tolist():
        at_targets += u < v and (u % 2 == 0 or v % 2 == 0)
    allowed = int(0.2 * at_targets)
    graph = add_edges(CLEAN, *((0, 30 + i) for i in range(1, allowed)))
    assert modify_audit(graph) == []
    graph = changed(graph, edge_index=without_edges(graph.edge_index, (4, 5), (6, 7)))
    (found,) = modify_audit(graph)
    assert found.code == "flipped_edges"
    for words in (f"{allowed + 1} edges", f"({allowed - 1} added, 2 removed)", "the first 0-31"):
        assert words in found.message
    assert f"at most {allowed} may be (0.2 of {at_targets})" in found.message


# Combinations

PLANTS: dict[str, Callable[[G], G]] = {
    "injected_nodes": lambda g: add_nodes(g, 4),
    "edges_per_injected_node": lambda g: add_edges(g, *((N, u) for u in range(16, 30, 2))),
    "feature_limits": lambda g: set_feature(g, N + 1, -3.0),
    "original_features": lambda g: set_feature(g, 11, 0.123),
    "original_edges_added": lambda g: add_edges(g, (13, 31)),
    "original_edges_removed": lambda g: changed(g, edge_index=without_edges(g.edge_index, (4, 5))),
    "not_a_target": lambda g: add_edges(g, (N + 2, 33)),
    "self_loop": lambda g: add_directed(g, (8, 8)),
    "duplicate_edge": lambda g: add_edges(g, (20, 21)),
    "index_out_of_range": lambda g: add_directed(g, (3, -1)),
    "one_way_edge": lambda g: add_directed(g, (N + 1, 36)),
}


@given(st.lists(st.sampled_from(sorted(PLANTS)), unique=True), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_every_planted_violation_is_found_beside_the_others(plants: list[str], random: Any) -> None:
    graph = injected()
    for name in plants:
        graph = PLANTS[name](graph)
    order = list(range(graph.edge_index.size(1)))
    random.shuffle(order)
    graph = changed(graph, edge_index=graph.edge_index[:, order])
    found = inject_audit(graph, max_injected_edges=None, max_edges_per_injected_node=5)
    assert codes(found) == set(plants)


# Against the attacks themselves


def test_a_budget_can_be_passed_as_it_is() -> None:
    assert {field.name for field in fields(Budget)} <= set(inspect.signature(audit).parameters)


@pytest.mark.parametrize("attack", [SPEIT(num_steps=3), TDGIA(num_steps=3)])
def test_the_attacks_pass_and_smaller_budgets_do_not(attack: SPEIT | TDGIA) -> None:
    graph = small_graph()
    clean = Data(x=graph.x, edge_index=graph.edge_index)
    budget = Budget(6, 10, (-0.94, 0.94))
    generator = torch.Generator().manual_seed(0)
    perturbed = attack(mean_of_neighbours, clean, graph.index_test, budget, generator)

    def found(**changes: Any) -> set[str]:
        limits = asdict(replace(budget, **changes))
        targets = graph.index_test
        return codes(audit(clean, perturbed, kind="injection", target_nodes=targets, **limits))

    assert found() == set()
    assert found(max_injected_nodes=5) == {"injected_nodes"}
    assert found(max_edges_per_injected_node=9) == {"edges_per_injected_node"}
    assert found(max_injected_edges=59) == {"injected_edges"}
    limits = perturbed.x[200:].min().item() / 2, perturbed.x[200:].max().item() / 2
    assert found(feature_limits=limits) == {"feature_limits"}


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        (2.0, 1.9, True),
        (2.0, 2.1, False),
        (2.0, -0.95, False),
        (0.5, 0.95, False),
        (-2.0, 0.0, True),
    ],
)
def test_a_modification_may_move_a_feature_from_out_of_range_no_further_out(
    before: float, after: float, allowed: bool
) -> None:
    clean, perturbed = (Data(x=CLEAN.x.clone(), edge_index=CLEAN.edge_index) for _ in range(2))
    clean.x[0, 0], perturbed.x[0, 0] = before, after
    limits = {"feature_limits": (-0.9, 0.9), "target_nodes": torch.tensor([0])}
    found = audit(clean, perturbed, kind="modification", **limits)
    assert codes(found) == (set() if allowed else {"feature_limits"})


def test_an_unknown_kind_is_refused() -> None:
    # Past the type checker of the tests, as it is in use.
    unchecked = inspect.unwrap(audit)
    with pytest.raises(ConfigError, match="kind=poisoning: unknown; use one of injection, modif"):
        unchecked(CLEAN, CLEAN, kind="poisoning")


def test_the_graphs_are_left_as_they_are() -> None:
    graph = add_directed(injected(), (8, 8), (3, -1))
    x, edges = graph.x.clone(), graph.edge_index.clone()
    clean_x, clean_edges = CLEAN.x.clone(), CLEAN.edge_index.clone()
    inject_audit(graph)
    assert torch.equal(graph.x, x)
    assert torch.equal(graph.edge_index, edges)
    assert torch.equal(CLEAN.x, clean_x)
    assert torch.equal(CLEAN.edge_index, clean_edges)


# Files


def rows_of(graph: G) -> sp.csr_matrix:
    """What GRB keeps of an injection: the rows of the new nodes."""
    m = graph.x.size(0)
    row, col = graph.edge_index
    whole = sp.csr_matrix((np.ones(row.numel(), np.float32), (row, col)), shape=(m, m))
    return whole[N:] if m > N else whole


def write_grb_result(folder: Path, graph: G, *, name: str = "", features: Any = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    sp.save_npz(folder / f"adj{name}.npz", rows_of(graph))
    written = graph.x[N:].numpy() if features is None else features
    np.save(folder / f"features{name}.npy", written)
    return folder / f"adj{name}.npz"


def test_grb_injections_are_read(tmp_path: Path) -> None:
    graph = add_edges(injected(), (N, N + 1))
    read = read_perturbed(write_grb_result(tmp_path, graph), CLEAN)
    assert read.kind == "injection"
    assert torch.equal(read.x, graph.x)
    assert read.violations == []
    as_sets = [set(map(tuple, g.edge_index.t().tolist())) for g in (read, graph)]
    assert as_sets[0] == as_sets[1]
    assert read.edge_index.size(1) == graph.edge_index.size(1)
    assert codes(inject_audit(G(read.x, read.edge_index))) == {
        "edges_per_injected_node",
        "injected_edges",
    }


def test_grb_injections_with_the_whole_matrix_are_read(tmp_path: Path) -> None:
    graph = injected()
    m = N + 3
    row, col = graph.edge_index
    sp.save_npz(tmp_path / "adj.npz", sp.coo_matrix((np.ones(row.numel()), (row, col)), (m, m)))
    np.save(tmp_path / "features.npy", graph.x.numpy())
    read = read_perturbed(tmp_path / "adj.npz", CLEAN)
    assert (read.kind, inject_audit(G(read.x, read.edge_index))) == ("injection", [])
    np.save(tmp_path / "features.npy", graph.x[N:].double().numpy())
    read = read_perturbed(tmp_path / "adj.npz", CLEAN)
    assert torch.equal(read.x, graph.x)


@pytest.mark.parametrize("features", [True, False])
def test_grb_modifications_are_read(tmp_path: Path, features: bool) -> None:
    graph = modified() if features else changed(modified(), x=CLEAN.x)
    # GRB normalises in float32, ours is float64 rounded to float32.
    noise = torch.rand(graph.x.shape, generator=torch.Generator().manual_seed(5)) * 2e-7
    path = write_grb_result(
        tmp_path, graph, name="_rn_0.2_re_0.2", features=(graph.x + noise).numpy()
    )
    if not features:
        (tmp_path / "features_rn_0.2_re_0.2.npy").unlink()
    read = read_perturbed(path, CLEAN)
    assert read.kind == "modification"
    assert modify_audit(G(read.x, read.edge_index), epsilon=0.1001) == []
    untouched = torch.ones(N, dtype=torch.bool)
    untouched[TARGETS[:5]] = not features
    assert torch.equal(read.x[untouched], CLEAN.x[untouched])


def test_edges_with_a_weight_are_found(tmp_path: Path) -> None:
    write_grb_result(tmp_path, injected())
    rows = rows_of(injected())
    rows.data[2] = 2
    sp.save_npz(tmp_path / "adj.npz", rows)
    read = read_perturbed(tmp_path / "adj.npz", CLEAN)
    assert codes(read.violations) == {"edge_weight"}
    assert "40-4 (2)" in read.violations[0].message
    assert inject_audit(G(read.x, read.edge_index)) == []


def test_entries_of_the_store_are_read(tmp_path: Path) -> None:
    store, graph = ArtifactStore(tmp_path), modified()
    whole = {"x": graph.x, "edge_index": graph.edge_index}
    nodes = TARGETS[:5]
    differences = {
        "injected_x": graph.x[N:],
        "changed_nodes": nodes,
        "changed_x": graph.x[nodes],
        "edge_index": graph.edge_index,
    }
    for seed, tensors in enumerate((whole, differences)):
        store.get_or_compute("graph", {"seed": seed}, lambda tensors=tensors: Artifact(tensors))
        read = read_perturbed(store.path("graph", {"seed": seed}), CLEAN)
        assert torch.equal(read.x, graph.x)
        assert torch.equal(read.edge_index, graph.edge_index)
        assert read.kind == "modification"
    store.get_or_compute("model", {}, lambda: Artifact({"w": torch.ones(2)}))
    assert len(perturbed_files(tmp_path)) == 2
    with pytest.raises(
        DataError, match="lacks 'edge_index', so it is no perturbed graph; it holds w"
    ):
        read_perturbed(store.path("model", {}), CLEAN)


def test_an_entry_of_another_graph_is_told_apart(tmp_path: Path) -> None:
    tensors = {
        "injected_x": torch.zeros(1, WIDTH + 1),
        "changed_nodes": torch.tensor([N + 5]),
        "changed_x": torch.zeros(1, WIDTH + 1),
        "edge_index": CLEAN.edge_index,
    }
    store = ArtifactStore(tmp_path)
    store.get_or_compute("graph", {}, lambda: Artifact(tensors))
    with pytest.raises(DataError, match=r"does not fit the clean graph .*name the dataset"):
        read_perturbed(store.path("graph", {}), CLEAN)


@pytest.mark.parametrize("through", ["folder", "file"])
def test_a_pickle_is_refused_and_never_run(tmp_path: Path, through: str) -> None:
    mark = tmp_path / "mark"
    path = tmp_path / "result" / "adj.pkl"
    path.parent.mkdir()
    path.write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(DataError) as caught:
        read_perturbed(path, CLEAN) if through == "file" else perturbed_files(path.parent)
    assert str(path) in str(caught.value)
    assert "is a pickle" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not mark.exists()


def test_the_advice_on_pickles_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = injected()
    write_grb_result(tmp_path, graph)
    (tmp_path / "adj.npz").unlink()
    (tmp_path / "adj.pkl").write_bytes(pickle.dumps(rows_of(graph)))
    with pytest.raises(DataError) as caught:
        perturbed_files(tmp_path)
    _, _, command = str(caught.value).partition("convert it: python -c ")
    exec(command.strip().strip('"'))
    (path,) = perturbed_files(tmp_path)
    assert (
        inject_audit(G(*(getattr(read_perturbed(path, CLEAN), n) for n in ("x", "edge_index"))))
        == []
    )


def test_a_pickle_inside_the_features_is_refused(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    path = write_grb_result(tmp_path, injected())
    np.save(tmp_path / "features.npy", np.array([Bomb(mark)]), allow_pickle=True)
    with pytest.raises(DataError, match=r"features\.npy: cannot be read \(Object arrays"):
        read_perturbed(path, CLEAN)
    assert not mark.exists()


def test_files_that_do_not_fit_are_told_in_a_line(tmp_path: Path) -> None:
    path, features = write_grb_result(tmp_path, injected()), tmp_path / "features.npy"
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: np.save(features, np.zeros((2, WIDTH))), r"\(2, 4\); .* 3 x 4 or 43 x 4"),
        (lambda: np.save(features, np.zeros((3, WIDTH)) * 1j), "holds no real numbers"),
        (lambda: features.write_bytes(b"no"), r"features\.npy: cannot be read"),
        (features.unlink, r"features\.npy: not found"),
        (lambda: sp.save_npz(path, sp.csr_matrix((7, 9))), "is 7 x 9, .* the 40 nodes"),
        (lambda: path.write_bytes(path.read_bytes()[:-9]), r"adj\.npz: cannot be read"),
        (path.unlink, r"adj\.npz: not found"),
    ]
    for damage, message in cases:
        damage()
        with pytest.raises(DataError, match=message) as caught:
            read_perturbed(path, CLEAN)
        assert "\n" not in str(caught.value)
    features.touch()
    with pytest.raises(DataError, match="is neither"):
        read_perturbed(features, CLEAN)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="holds no perturbed graph"):
        perturbed_files(empty)
