import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from robust_diffusion.attacks import Budget
from robust_diffusion.attacks.audit import Violation, audit
from robust_diffusion.errors import ConfigError
from tests.attacks.audit.graphs import (
    CLEAN,
    MODIFICATION,
    WIDTH,
    G,
    N,
    add_directed,
    add_edges,
    add_nodes,
    changed,
    codes,
    inject_audit,
    injected,
    modified,
    modify_audit,
    set_feature,
    without_edges,
)

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


def planted(code: str, graph: G) -> G:
    return FORM[code][0](graph)


@pytest.mark.parametrize("code", FORM)
@pytest.mark.parametrize("kind", ["injection", "modification"])
def test_what_is_no_simple_graph_is_found(code: str, kind: str) -> None:
    if kind == "injection":
        found = inject_audit(planted(code, injected()))
    else:
        found = modify_audit(planted(code, modified()))
    (violation,) = [violation for violation in found if violation.code == code]
    assert violation.level == "error"
    assert re.search(FORM[code][1], violation.message)
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


GOOD, BAD = injected(), modified()
AT_TARGETS = sum(u < v and u % 2 * v % 2 == 0 for u, v in CLEAN.edge_index.t().tolist())
FLIPS = int(0.2 * AT_TARGETS)
ADDED = add_edges(CLEAN, *((0, 30 + i) for i in range(1, FLIPS)))
FEWER = G(CLEAN.x[:-1], CLEAN.edge_index[:, (CLEAN.edge_index < N - 1).all(0)])
NEXT = torch.nextafter(CLEAN.x[3, 1], torch.tensor(1.0)).item()
LARGE = set_feature(
    set_feature(BAD, 0, CLEAN.x[0, 1].item() + 0.11), 4, CLEAN.x[4, 1].item() - 0.25
)
LOOSE = {"max_edges_per_injected_node": None, "max_injected_edges": None}

# Each limit broken alone: the graph, other limits, and "code: what its message says".
INJECTIONS = [
    (add_nodes(GOOD, 2), {}, ["injected_nodes: 5 .*at most 3"]),
    (
        add_edges(GOOD, (N + 1, 0), (N + 1, 2), (N + 2, 0)),
        {"max_injected_edges": None},
        [r"edges_per_injected_node: 2 .*node 41 \(6\), node 42 \(5\); at most 4"],
    ),
    (
        add_edges(GOOD, (N, N + 1)),  # counts for both nodes, and once in all
        {},
        [
            r"edges_per_injected_node: .*node 40 \(5\), node 41 \(5\);",
            "injected_edges: 13 .*at most 12",
        ],
    ),
    (set_feature(GOOD, 3, NEXT), {}, ["original_features: 1 .*node 3;"]),
    (
        changed(GOOD, x=torch.cat([torch.zeros(30, WIDTH), GOOD.x[30:]])),
        {},
        [r"original_features: 30 .*node 0, node 1, node 2, \.\.\.;"],
    ),
    (
        changed(GOOD, edge_index=without_edges(GOOD.edge_index, (2, 3), (0, 39))),
        {},
        ["original_edges_removed: 2 .*0-39, 2-3;"],
    ),
    (add_edges(GOOD, (2, 20)), {}, ["original_edges_added: 1 .*2-20;"]),
    (FEWER, {}, ["num_nodes: 39 nodes; .*40", "original_edges_removed: "]),
    (add_edges(GOOD, (N + 1, 7), (N + 2, 9)), LOOSE, ["not_a_target: 2 .*7-41, 9-42"]),
    (BAD, {}, ["original_features: ", "original_edges_added: ", "original_edges_removed: "]),
]
MODIFICATIONS = [
    (
        set_feature(BAD, 20, 0.0, column=0),
        {"epsilon": 2},
        [r"changed_nodes: 6 .*node 0, node 2, node 4, \.\.\.; at most 5 may \(0.25 of 20\)"],
    ),
    (set_feature(CLEAN, 7, CLEAN.x[7, 1].item() + 0.05), {}, ["changed_elsewhere: 1 .*node 7;"]),
    (LARGE, {}, [r"epsilon: 2 .*node 0 \(0.11\), node 4 \(0.25\); at most 0.1"]),
    (
        changed(ADDED, edge_index=without_edges(ADDED.edge_index, (4, 5), (6, 7))),
        {},
        [rf"flipped_edges: {FLIPS + 1} .*\({FLIPS - 1} added, 2 removed\), .*0-31.* most {FLIPS} "],
    ),
    (add_edges(CLEAN, (1, 5), (2, 5)), {}, ["flipped_elsewhere: 1 .*1-5;"]),
    (FEWER, {}, ["num_nodes: 39 nodes; .*40"]),
    (GOOD, {}, ["num_nodes: ", "flipped_edges: "]),
]


@pytest.mark.parametrize(
    ("check", "graph", "limits", "expected"),
    [(inject_audit, *case) for case in INJECTIONS]
    + [(modify_audit, *case) for case in MODIFICATIONS],
)
def test_a_broken_limit_is_found(
    check: Callable[..., list[Violation]], graph: G, limits: dict[str, Any], expected: list[str]
) -> None:
    violations = check(graph, **limits)
    assert codes(violations) == {line.split(":")[0] for line in expected}
    found = "\n".join(f"{violation.code}: {violation.message}" for violation in violations)
    for line in expected:
        assert re.search(f"^{line}", found, re.MULTILINE)
    levels = {violation.code: violation.level for violation in violations}
    assert all((levels[code] == "warning") == (code == "not_a_target") for code in levels)


def test_what_is_within_the_limits_passes() -> None:
    order = torch.randperm(GOOD.edge_index.size(1), generator=torch.Generator().manual_seed(1))
    for graph in (GOOD, CLEAN, changed(GOOD, edge_index=GOOD.edge_index[:, order].flip(0))):
        assert inject_audit(graph) == []
    assert inject_audit(CLEAN, max_injected_nodes=0, max_injected_edges=0) == []
    both = add_edges(GOOD, (N, N + 1))
    assert inject_audit(both, max_edges_per_injected_node=5, max_injected_edges=13) == []
    for graph in (BAD, CLEAN, ADDED):
        assert modify_audit(graph) == []


def test_limits_that_are_not_given_are_not_looked_at() -> None:
    many = add_edges(add_nodes(GOOD, 2), (N, 0 + 20), (N, 22), (N + 3, 0), (N + 1, 7))
    assert audit(CLEAN, many, kind="injection", feature_limits=(-1, 1)) == []
    assert audit(CLEAN, add_edges(CLEAN, (1, 5)), kind="modification", edge_ratio=0.2) == []


@pytest.mark.parametrize("value", [0.95, -0.95, float("inf"), 0.9 + 1e-6])
def test_a_feature_out_of_range_is_found(value: float) -> None:
    found = [
        v for v in inject_audit(set_feature(injected(), N + 2, value)) if v.code == "feature_limits"
    ]
    assert len(found) == 1
    assert "1 features are out of range, the first at node 42 (" in found[0].message
    assert "the range is -0.9..0.9" in found[0].message


@pytest.mark.parametrize("limits", [(-0.94, 0.943), (-0.1, 0.7), (0.1, 0.3), (-0.96, 0.89)])
def test_a_limit_counts_as_the_features_type_rounds_it(limits: tuple[float, float]) -> None:
    graph = injected()
    x = torch.cat([CLEAN.x, torch.tensor([limits]).repeat(3, WIDTH // 2)])
    assert inject_audit(changed(graph, x=x), feature_limits=limits) == []
    for value, toward in ((x.max(), 10.0), (x.min(), -10.0)):
        beyond = torch.nextafter(value, torch.tensor(toward)).item()
        graph = set_feature(changed(graph, x=x), N, beyond)
        assert codes(inject_audit(graph, feature_limits=limits)) == {"feature_limits"}


def test_without_limits_those_of_the_clean_graph_count() -> None:
    low, high = CLEAN.x.min().item(), CLEAN.x.max().item()
    x = torch.cat([CLEAN.x, torch.tensor([[low, high, 0.0, 0.0]]).repeat(3, 1)])
    graph = changed(injected(), x=x)
    assert inject_audit(graph, feature_limits=None) == []
    graph = set_feature(graph, N, high + 1e-4)
    assert codes(inject_audit(graph, feature_limits=None)) == {"feature_limits"}


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


def test_only_what_is_written_has_to_be_in_range() -> None:
    clean = set_feature(CLEAN, 6, 0.97)
    limits = MODIFICATION | {"epsilon": 5}
    within = set_feature(clean, 6, 0.5, column=0)
    assert audit(clean, within, kind="modification", **limits) == []  # type: ignore[arg-type]
    beyond = set_feature(clean, 6, 0.98)
    (found,) = audit(clean, beyond, kind="modification", **limits)  # type: ignore[arg-type]
    assert found.code == "feature_limits"
    assert "1 features are out of range, the first at node 6 (0.98);" in found.message


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
