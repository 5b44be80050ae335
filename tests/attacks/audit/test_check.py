import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from robust_diffusion.attacks.audit import Violation, audit
from robust_diffusion.errors import ConfigError, DataError
from tests.attacks.audit.graphs import (
    CLEAN,
    WIDTH,
    G,
    N,
    add_directed,
    add_edges,
    add_nodes,
    codes,
    inject_audit,
    injected,
    modified,
    modify_audit,
    set_feature,
    without_edges,
)
from tests.graphs import without_type_checks

Check = Callable[..., list[Violation]]
# What every graph must be: planted into a good injection and into a good modification.
FORM: dict[str, Callable[[G], G]] = {
    "features_dtype": lambda g: replace(g, x=g.x.double()),
    "edges_dtype": lambda g: replace(g, edge_index=g.edge_index.int()),
    "not_finite": lambda g: set_feature(g, 0, float("nan")),
    "index_out_of_range": lambda g: add_edges(g, (0, 99)),
    "self_loop": lambda g: add_directed(g, (7, 7), (5, 5)),
    "duplicate_edge": lambda g: add_edges(g, (2, 3)),
    "one_way_edge": lambda g: replace(g, edge_index=g.edge_index[:, 1:]),
}
# NaN is another feature.
CONSEQUENCES = {inject_audit: {"original_features"}, modify_audit: {"changed_nodes"}}
GOOD, BAD = injected(), modified()


@pytest.mark.parametrize("code", FORM)
@pytest.mark.parametrize(("check", "good"), [(inject_audit, GOOD), (modify_audit, BAD)])
def test_audit_graphs_that_are_not_simple(code: str, check: Check, good: G) -> None:
    found = check(FORM[code](good))
    assert codes(found) - CONSEQUENCES[check] == {code}
    assert all(violation.level == "error" for violation in found)


@pytest.mark.parametrize(("kind", "good"), [("injection", GOOD), ("modification", BAD)])
def test_audit_bad_tensors(kind: Any, good: G) -> None:
    for x in (good.x.flatten(), good.x[:, :3], good.x[None]):
        assert codes(audit(CLEAN, replace(good, x=x), kind=kind)) == {"features_shape"}
    for edges in (good.edge_index.t(), good.edge_index[0], good.edge_index[:1]):
        assert "edges_shape" in codes(audit(CLEAN, replace(good, edge_index=edges), kind=kind))
    found = audit(CLEAN, replace(good, edge_index=good.edge_index.float()), kind=kind)
    assert "edges_dtype" in codes(found)


AT_TARGETS = sum(u < v and u % 2 * v % 2 == 0 for u, v in CLEAN.edge_index.t().tolist())
FLIPS = int(0.2 * AT_TARGETS)
ADDED = add_edges(CLEAN, *((0, 30 + i) for i in range(1, FLIPS)))
FLIPPED = replace(ADDED, edge_index=without_edges(ADDED.edge_index, (4, 5), (6, 7)))
FEWER = G(CLEAN.x[:-1], CLEAN.edge_index[:, (CLEAN.edge_index < N - 1).all(0)])
NEXT = torch.nextafter(CLEAN.x[3, 1], torch.tensor(1.0)).item()
LARGE = set_feature(
    set_feature(BAD, 0, CLEAN.x[0, 1].item() + 0.11), 4, CLEAN.x[4, 1].item() - 0.25
)
LOOSE = {"max_edges_per_injected_node": None, "max_injected_edges": None}

# Each limit broken alone: the graph, other limits, and the codes of what is found.
INJECTIONS: list[tuple[G, dict[str, Any], set[str]]] = [
    (add_nodes(GOOD, 2), {}, {"injected_nodes"}),
    (
        add_edges(GOOD, (N + 1, 0), (N + 1, 2), (N + 2, 0)),
        {"max_injected_edges": None},
        {"edges_per_injected_node"},
    ),
    # An edge of two new nodes counts for both, and once in all.
    (add_edges(GOOD, (N, N + 1)), {}, {"edges_per_injected_node", "injected_edges"}),
    *[(set_feature(GOOD, N + 2, v), {}, {"feature_limits"}) for v in (0.9 + 1e-6, -0.95)],
    (set_feature(GOOD, 3, NEXT), {}, {"original_features"}),
    (
        replace(GOOD, edge_index=without_edges(GOOD.edge_index, (2, 3), (0, 39))),
        {},
        {"original_edges_removed"},
    ),
    (add_edges(GOOD, (2, 20)), {}, {"original_edges_added"}),
    (FEWER, {}, {"num_nodes", "original_edges_removed"}),
    (add_edges(GOOD, (N + 1, 7), (N + 2, 9)), LOOSE, {"not_a_target"}),
    (BAD, {}, {"original_features", "original_edges_added", "original_edges_removed"}),
]
MODIFICATIONS: list[tuple[G, dict[str, Any], set[str]]] = [
    (set_feature(BAD, 20, 0.0, column=0), {"epsilon": 2}, {"changed_nodes"}),
    (set_feature(CLEAN, 7, CLEAN.x[7, 1].item() + 0.05), {}, {"changed_elsewhere"}),
    (LARGE, {}, {"epsilon"}),
    (FLIPPED, {}, {"flipped_edges"}),
    (add_edges(CLEAN, (1, 5), (2, 5)), {}, {"flipped_elsewhere"}),
    (FEWER, {}, {"num_nodes"}),
    (GOOD, {}, {"num_nodes", "flipped_edges"}),
]


@pytest.mark.parametrize(
    ("check", "graph", "limits", "expected"),
    [(inject_audit, *case) for case in INJECTIONS]
    + [(modify_audit, *case) for case in MODIFICATIONS],
)
def test_audit_broken_limits(
    check: Check, graph: G, limits: dict[str, Any], expected: set[str]
) -> None:
    violations = check(graph, **limits)
    assert codes(violations) == expected
    warned = {violation.code for violation in violations if violation.level == "warning"}
    assert warned == expected & {"not_a_target"}


def test_audit_within_limits() -> None:
    order = torch.randperm(GOOD.edge_index.size(1), generator=torch.Generator().manual_seed(1))
    for graph in (GOOD, CLEAN, replace(GOOD, edge_index=GOOD.edge_index[:, order].flip(0))):
        assert inject_audit(graph) == []
    assert inject_audit(CLEAN, max_injected_nodes=0, max_injected_edges=0) == []
    both = add_edges(GOOD, (N, N + 1))
    assert inject_audit(both, max_edges_per_injected_node=5, max_injected_edges=13) == []
    for graph in (BAD, CLEAN, ADDED):
        assert modify_audit(graph) == []


def test_audit_without_limits() -> None:
    many = add_edges(add_nodes(GOOD, 2), (N, 0 + 20), (N, 22), (N + 3, 0), (N + 1, 7))
    assert audit(CLEAN, many, kind="injection", feature_limits=(-1, 1)) == []
    assert audit(CLEAN, add_edges(CLEAN, (1, 5)), kind="modification", edge_ratio=0.2) == []


@pytest.mark.parametrize("limits", [(-0.94, 0.943), (-0.1, 0.7), (0.1, 0.3), (-0.96, 0.89)])
def test_a_limit_counts_as_the_features_type_rounds_it(limits: tuple[float, float]) -> None:
    graph = injected()
    x = torch.cat([CLEAN.x, torch.tensor([limits]).repeat(3, WIDTH // 2)])
    assert inject_audit(replace(graph, x=x), feature_limits=limits) == []
    for value, toward in ((x.max(), 10.0), (x.min(), -10.0)):
        beyond = torch.nextafter(value, torch.tensor(toward)).item()
        graph = set_feature(replace(graph, x=x), N, beyond)
        assert codes(inject_audit(graph, feature_limits=limits)) == {"feature_limits"}


@given(
    st.floats(-0.75, 0.75, width=32),
    st.sampled_from([0.01, 0.1, 0.3, 1.0]),
    st.sampled_from([-1, 1]),
)
def test_rounding_is_no_change_beyond_epsilon(value: float, epsilon: float, sign: int) -> None:
    clean = G(torch.full((1, 1), value), torch.empty(2, 0, dtype=torch.int64))
    moved = clean.x + sign * torch.tensor(epsilon)  # rounded in float32
    for factor, expected in ((1, set()), (1.00001, {"epsilon"})):
        graph = replace(clean, x=clean.x + (moved - clean.x) * factor)
        found = audit(clean, graph, kind="modification", epsilon=epsilon, feature_limits=(-2, 2))
        assert codes(found) == expected


def test_whole_numbers_are_compared_with_epsilon() -> None:
    words = replace(CLEAN, x=(CLEAN.x > 0).long())
    attacked = set_feature(replace(CLEAN, x=words.x.float()), 0, 0.25)
    found = audit(words, attacked, kind="modification", epsilon=0.8)
    assert codes(found) == {"features_dtype"}
    found = audit(words, attacked, kind="modification", epsilon=0.1)
    assert codes(found) == {"features_dtype", "epsilon"}


@pytest.mark.parametrize("nodes", [[N], [-1], [0] * 2, [True]])
def test_target_nodes_of_another_graph_are_refused(nodes: list[int]) -> None:
    with without_type_checks(), pytest.raises(DataError, match=r"^target_nodes: [^\n]*$"):
        audit(CLEAN, GOOD, kind="injection", target_nodes=torch.tensor(nodes))


def test_an_unknown_kind_is_refused() -> None:
    with without_type_checks(), pytest.raises(ConfigError, match="kind=poisoning"):
        audit(CLEAN, CLEAN, kind="poisoning")


@pytest.mark.parametrize("kind", ["injection", "modification"])
def test_a_graph_in_another_node_order_is_named_as_such(kind: Any) -> None:
    order = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    mixed = G(CLEAN.x, order[CLEAN.edge_index])
    (violation,) = audit(CLEAN, mixed, kind=kind, edge_ratio=0.05)
    assert violation.code == "another_graph"
    assert re.match(r"only \d of the clean graph's 50 edges are in", violation.message)
    assert "another_graph" not in codes(audit(CLEAN, mixed, kind="modification", edge_ratio=1.0))
