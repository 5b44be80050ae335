"""Check of a perturbed graph against its budget: the rules and their violations."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from robust_diffusion.attacks.budget import SUM_TOLERANCE, Budget, share
from robust_diffusion.checks import check_choice
from robust_diffusion.data.validate import finite_rows, node_numbers

ViolationKind = Literal["injection", "modification"]
Level = Literal["error", "warning"]

_SHOWN = 3
"""Most offenders that a message lists."""

_RULES: Mapping[str, str] = {
    "features_shape": "features have shape {shape}, not (n, {width})",
    "features_dtype": "features are of type {dtype}; the clean graph's are {allowed}",
    "not_finite": "{count} features are NaN or infinite, the first at {1}; all must be finite",
    "edges_shape": "edges have shape {shape}, not (2, e)",
    "edges_dtype": "edges are of type {dtype}, not torch.int64",
    "index_out_of_range": "{0} edges name a node that is not there, the first {1}; nodes are "
    "0..{last}",
    "self_loop": "{0} edges run from a node to itself, the first at {1}; none may",
    "duplicate_edge": "{0} edges are listed before, the first {1}; each may be there once",
    "one_way_edge": "{0} edges lack their reverse, the first {1}; the graph must be undirected",
    "edge_weight": "{0} edges have a weight, the first {1}; all must be 1",
    "num_nodes": "{nodes} nodes; the clean graph has {clean}, and the {kind} {allowed}",
    "another_graph": "only {shared} of the clean graph's {total} edges are in the attacked graph; "
    "compare with the graph that was attacked, its nodes in the same order",
    "original_features": "{0} original nodes have other features, the first {1}; none may",
    "original_edges_added": "{0} edges between original nodes are added, the first {1}; none may "
    "be",
    "original_edges_removed": "{0} edges between original nodes are removed, the first {1}; none "
    "may be",
    "injected_nodes": "{0} nodes are injected; at most {most} may be",
    "edges_per_injected_node": "{0} injected nodes have too many edges, the first {1}; at most "
    "{most} each",
    "injected_edges": "{0} edges are injected; at most {most} may be in all",
    "not_a_target": "{0} injected edges lead to nodes that are not under attack, the first {1}",
    "feature_limits": "{count} features are out of range, the first at {1}; the range is "
    "{low:g}..{high:g}",
    "third_value": "{count} features are neither absent ({low:g}) nor present ({high:g}), the "
    "first at {1}",
    "row_sums": "{0} injected nodes have features that do not sum to one, the first {1}",
    "max_words": "{0} injected nodes hold too many words, the first {1}; at most {most} each",
    "changed_elsewhere": "{0} nodes that are not under attack have other features, the first {1}; "
    "none may",
    "changed_nodes": "{0} nodes have other features, the first {1}; at most {most} may ({ratio} of "
    "{total})",
    "epsilon": "{count} features change by too much, the first at {1}; at most {most:g} each",
    "flipped_elsewhere": "{0} edges that touch no node under attack are flipped, the first {1}; "
    "none may be",
    "flipped_edges": "{0} edges are flipped ({added} added, {removed} removed), the first {1}; at "
    "most {most} may be ({ratio} of {total})",
}
"""Message of each rule; {0} is the number of offenders, and {1} lists the first few."""


@runtime_checkable
class GraphLike(Protocol):
    """Anything with features and edges, such as PyG's `Data` or a `PerturbedGraph`."""

    @property
    def x(self) -> Tensor | None:
        """Features, n x f."""

    @property
    def edge_index(self) -> Tensor | None:
        """Edges, 2 x e, both directions."""


def graph_parts(graph: GraphLike) -> tuple[Tensor, Tensor]:
    """Return the features and edges, on the CPU."""
    assert graph.x is not None
    assert graph.edge_index is not None
    return graph.x.detach().cpu(), graph.edge_index.detach().cpu()


@dataclass(frozen=True)
class Violation:
    """One rule that a perturbed graph breaks."""

    code: str  # the rule
    message: str  # one line: what, how often, the first offenders, and what is allowed
    level: Level = "error"  # a `warning` does not violate the budget


class Violations(list[Violation]):
    """The rules that a graph breaks, in the order in which they are checked."""

    def add(
        self, code: str, offenders: Tensor | int, values: Tensor | None = None, **details: object
    ) -> None:
        """Add a violation if there are offenders: nodes, pairs of nodes as 2 x k, or their number.

        The message shows `details`, and `values` with one value per offender.
        """
        count, names = offenders if isinstance(offenders, int) else offenders.size(-1), list[str]()
        if isinstance(offenders, Tensor):
            rows = offenders[..., :_SHOWN].t().tolist()
            names = [f"{row[0]}-{row[1]}" if offenders.ndim == 2 else f"node {row}" for row in rows]
        if values is not None:
            shown = values[: len(names)].tolist()
            names = [f"{name} ({value:.7g})" for name, value in zip(names, shown, strict=True)]
        if count:
            listed = ", ".join(names) + (", ..." if count > _SHOWN else "")
            message = _RULES[code].format(count, listed, **details)
            level: Level = "warning" if code == "not_a_target" else "error"
            self.append(Violation(code, message, level))


INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def audit(
    clean: GraphLike,
    perturbed: GraphLike,
    *,
    kind: ViolationKind,
    max_injected_nodes: int | None = None,
    max_edges_per_injected_node: int | None = None,
    max_injected_edges: int | None = None,
    feature_limits: Sequence[float] | None = None,
    node_ratio: float | None = None,
    edge_ratio: float | None = None,
    epsilon: float | None = None,
    features: Literal["binary", "frequencies"] | None = None,
    max_words: int | None = None,
    target_nodes: Int[Tensor, " t"] | None = None,
) -> list[Violation]:
    """Check a perturbed graph against its clean one, counted from the graphs themselves.

    Both kinds require valid types and shapes, finite values, and a simple undirected graph. An
    injection leaves original nodes and edges as they are. A modification has the same nodes, and
    only changes features of target nodes and flips edges that touch one. The limits are the fields
    of `Budget`; limits of the other kind are ignored.

    Args:
        clean: The graph before the attack, simple and undirected.
        perturbed: The graph after it, original nodes first.
        kind: What the attack may do.
        max_injected_nodes: Most nodes injected. For this and all other limits except
            `feature_limits`, `None` means no limit.
        max_edges_per_injected_node: Most undirected edges of one injected node.
        max_injected_edges: Most undirected edges with an injected end.
        feature_limits: Smallest and largest feature value that may be written; `None` for those of
            the clean graph. The limits are rounded to the data type of the features.
        node_ratio: Share of the target nodes whose features may change.
        edge_ratio: Share of the undirected edges at target nodes that may be flipped.
        epsilon: Largest change of one feature, with a tolerance for rounding.
        features: Form of injected features, as in `Budget`.
        max_words: Most words of an injected node.
        target_nodes: Nodes under attack, each once; `None` for all. An injected edge to another
            node is a warning, since no budget forbids it.

    Returns:
        The violations, at most one per rule; empty if there are none.
    """
    check_choice("kind", kind, get_args(ViolationKind))
    (x, edge_index), (reference, clean_edges) = graph_parts(perturbed), graph_parts(clean)
    violations = Violations()
    if not _check_features(violations, x, reference):
        return list(violations)
    n, m = reference.size(0), x.size(0)
    edges = UndirectedEdges(edge_index, m, max(n, m))
    original = UndirectedEdges(clean_edges, n, max(n, m))
    targets = _mask(n, target_nodes)
    is_injection = kind == "injection"
    violations += edges.violations
    allowed = "only adds some" if is_injection else "keeps them"
    wrong = int(m < n or (m > n and not is_injection))
    violations.add("num_nodes", wrong, nodes=m, clean=n, kind=kind, allowed=allowed)
    moved = (x[: min(n, m)] != reference[: min(n, m)]).any(1).nonzero()[:, 0]
    added, removed = edges.ends(edges.without(original)), original.ends(original.without(edges))
    flips = 0 if is_injection else _limit(edge_ratio, original.ids.numel())
    if not edges.violations and _is_another(violations, original, removed, flips):
        return list(violations)
    if is_injection:
        violations.add("original_features", moved)
        violations.add("original_edges_added", added[:, added[1] < n])
        violations.add("original_edges_removed", removed)
        most = max_injected_nodes, max_edges_per_injected_node, max_injected_edges
        _check_new_nodes(violations, edges.ends(), targets, m - n, *most)
        budget = Budget(feature_limits=feature_limits, features=features, max_words=max_words)
        _check_injected(violations, x[n:], n, budget.resolve(reference))
        return list(violations)
    limits = Budget(feature_limits=feature_limits).resolve(reference).limits
    _check_moved(violations, moved, targets, node_ratio)
    _check_epsilon(violations, moved, reference[moved], x[moved], epsilon)
    _check_limits(violations, x[moved], moved, limits, reference[moved])
    attacked = torch.cat([targets, targets.new_zeros(max(n, m) - n)])
    _check_flips(violations, added, removed, attacked, original.ends(), edge_ratio)
    return list(violations)


def _check_features(violations: Violations, x: Tensor, reference: Tensor) -> bool:
    """Check shape, data type and values; return whether the shape allows further checks."""
    if x.ndim != 2 or x.size(1) != reference.size(1):
        violations.add("features_shape", 1, shape=tuple(x.shape), width=reference.size(1))
        return False
    differs, bad = int(x.dtype != reference.dtype), (~finite_rows(x)).nonzero()[:, 0]
    violations.add("features_dtype", differs, dtype=x.dtype, allowed=reference.dtype)
    violations.add("not_finite", bad, count=int((~x[bad].isfinite()).sum()))
    return True


def _is_another(
    violations: Violations, original: "UndirectedEdges", removed: Tensor, allowed: float
) -> bool:
    """Return whether most edges differ; then, counting flips would only blame the budget."""
    total = original.ids.numel()
    shared = total - removed.size(1)
    another = 2 * shared < total and removed.size(1) > allowed
    violations.add("another_graph", removed.size(1) * another, shared=shared, total=total)
    return another


def _mask(n: int, nodes: Int[Tensor, " t"] | None) -> Bool[Tensor, " n"]:
    """Return a mask of n nodes that is true at `nodes`, or everywhere if `nodes` is `None`."""
    mask = torch.full((n,), nodes is None)
    if nodes is not None:
        mask[node_numbers(nodes, n, "target_nodes")] = True
    return mask


class UndirectedEdges:
    """The undirected edges of a graph, each once, even if its edge list is malformed.

    Edge u < v has the number u base + v; two graphs can be compared if they have the same base.
    Edges to nodes outside 0..num_nodes - 1 are left out. `violations` lists the defects of the edge
    list. All operations except sorting take linear time.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int, base: int) -> None:
        self.base, self.ids = base, torch.empty(0, dtype=torch.int64)
        self.violations = violations = Violations()
        is_list = edge_index.ndim == 2 and edge_index.size(0) == 2
        violations.add("edges_shape", int(not is_list), shape=tuple(edge_index.shape))
        if is_list and edge_index.dtype != torch.int64:
            violations.add("edges_dtype", 1, dtype=edge_index.dtype)
        if not is_list or edge_index.dtype not in INTEGERS:
            return
        edges = edge_index.detach().cpu().long()
        wrong = ((edges < 0) | (edges >= num_nodes)).any(0)
        violations.add("index_out_of_range", edges[:, wrong], last=num_nodes - 1)
        loops = ~wrong & (edges[0] == edges[1])
        violations.add("self_loop", edges[0, loops])
        src, dst = edges[:, ~(wrong | loops)]
        directed = _sorted(src * base + dst)
        again = torch.zeros(directed.numel(), dtype=torch.bool)
        again[1:] = directed[1:] == directed[:-1]
        violations.add("duplicate_edge", self.ends(directed[again]))
        directed = directed[~again]
        src, dst = self.ends(directed)
        there, back = directed[src < dst], _sorted((dst * base + src)[src > dst])
        self.ids = there
        if torch.equal(there, back):
            return
        up, down = there[~_contains(back, there)], back[~_contains(there, back)]
        violations.add("one_way_edge", torch.cat([self.ends(up), self.ends(down).flip(0)], 1))
        self.ids = _sorted(torch.cat([there, down]))

    def ends(self, ids: Int[Tensor, " k"] | None = None) -> Int[Tensor, "2 k"]:
        """Return both ends of edges, the smaller node first; by default of all edges."""
        ids = self.ids if ids is None else ids
        return torch.stack([ids // self.base, ids % self.base])

    def without(self, other: "UndirectedEdges") -> Int[Tensor, " k"]:
        """Return the numbers of the edges that the other graph lacks."""
        return self.ids[~_contains(other.ids, self.ids)]


def _sorted(ids: Tensor) -> Tensor:
    # Most edge lists are sorted already, and checking is cheap.
    return ids if (ids[1:] >= ids[:-1]).all() else ids.sort().values


def _contains(haystack: Tensor, needles: Tensor) -> Tensor:
    """Return for each needle whether it is in the sorted haystack."""
    if haystack.numel() == 0:
        return torch.zeros(needles.numel(), dtype=torch.bool)
    position = torch.searchsorted(haystack, needles).clamp_(max=haystack.numel() - 1)
    return haystack[position] == needles


def _check_new_nodes(
    violations: Violations,
    ends: Int[Tensor, "2 e"],
    targets: Bool[Tensor, " n"],
    num_new: int,
    max_nodes: int | None,
    max_per_node: int | None,
    max_edges: int | None,
) -> None:
    """Check the limits of new nodes and their edges, and report edges to non-target nodes."""
    n = targets.numel()
    ends = ends[:, ends[1] >= n]
    degree = torch.bincount(ends[ends >= n] - n)
    over = (degree > (ends.size(1) if max_per_node is None else max_per_node)).nonzero()[:, 0]
    away = ends[:, ends[0] < n]
    away = away[:, ~targets[away[0]]]
    if max_nodes is not None and num_new > max_nodes:
        violations.add("injected_nodes", num_new, most=max_nodes)
    violations.add("edges_per_injected_node", over + n, degree[over], most=max_per_node)
    if max_edges is not None and ends.size(1) > max_edges:
        violations.add("injected_edges", ends.size(1), most=max_edges)
    violations.add("not_a_target", away)


def _check_moved(
    violations: Violations, moved: Tensor, targets: Bool[Tensor, " n"], node_ratio: float | None
) -> None:
    most = _limit(node_ratio, total := int(targets.sum()))
    violations.add("changed_elsewhere", moved[~targets[moved]])
    too_many = moved if moved.numel() > most else 0
    violations.add("changed_nodes", too_many, most=most, ratio=node_ratio, total=total)


def _check_epsilon(
    violations: Violations, moved: Tensor, before: Tensor, after: Tensor, epsilon: float | None
) -> None:
    if epsilon is None:
        return
    allowed = _outwards(epsilon, before.dtype, 1)
    rounding = torch.finfo(before.dtype).eps if before.is_floating_point() else 0
    after, before = after.double(), before.double()
    change = (after - before).abs()
    over = change > allowed + rounding * torch.maximum(after.abs(), before.abs())
    rows = over.any(1)
    largest = change[rows].max(1).values if rows.any() else None
    violations.add("epsilon", moved[rows], largest, count=int(over.sum()), most=epsilon)


def _check_flips(
    violations: Violations,
    added: Tensor,
    removed: Tensor,
    attacked: Bool[Tensor, " m"],
    there: Int[Tensor, "2 e"],
    edge_ratio: float | None,
) -> None:
    flipped = torch.cat([added, removed], 1)
    limit = _limit(edge_ratio, at_targets := int(attacked[there].any(0).sum()))
    violations.add("flipped_elsewhere", flipped[:, ~attacked[flipped].any(0)])
    if flipped.size(1) > limit:
        spent = {"added": added.size(1), "removed": removed.size(1)}
        allowed = {"most": limit, "ratio": edge_ratio, "total": at_targets}
        violations.add("flipped_edges", flipped, None, **spent, **allowed)


def _check_limits(
    violations: Violations,
    x: Tensor,
    numbers: Tensor,
    limits: Sequence[float],
    before: Tensor | None = None,
) -> None:
    """Check features against the range, whose limits are rounded to the data type of `x`.

    A feature that was out of range before may have any value between the range and its old value.
    """
    low, high = _outwards(limits[0], x.dtype, -1), _outwards(limits[1], x.dtype, 1)
    values = x.double()
    below, above = low - values, values - high
    if before is not None:
        below = torch.minimum(below, before.double() - values)
        above = torch.minimum(above, values - before.double())
    beyond = torch.maximum(below, above)
    beyond = beyond.nan_to_num(nan=-math.inf, posinf=math.inf)
    rows = (beyond > 0).any(1)
    worst = values[rows].gather(1, beyond[rows].argmax(1, keepdim=True))[:, 0]
    low, high = limits
    count = int((beyond > 0).sum())
    violations.add("feature_limits", numbers[rows], worst, count=count, low=low, high=high)


def _check_injected(violations: Violations, x: Tensor, n: int, budget: Budget) -> None:
    """Check the limits and the form of injected features: two values, or rows that sum to one."""
    numbers = torch.arange(n, n + x.size(0))
    _check_limits(violations, x, numbers, budget.limits)
    (low, high), features, max_words = budget.limits, budget.features, budget.max_words
    if features == "binary":
        other = (x != low) & (x != high)
        rows = other.any(1)
        value = x[rows].gather(1, other[rows].int().argmax(1, keepdim=True))[:, 0]
        count = int(other.sum())
        violations.add("third_value", numbers[rows], value, count=count, low=low, high=high)
    if features == "frequencies":
        sums = x.double().sum(1)
        rows = ~((sums - 1).abs() < SUM_TOLERANCE)
        violations.add("row_sums", numbers[rows], sums[rows])
    if max_words is not None:
        words = (x != low).sum(1)
        rows = words > max_words
        violations.add("max_words", numbers[rows], words[rows], most=max_words)


def _outwards(limit: float, dtype: torch.dtype, sign: int) -> float:
    """Round an upper (1) or lower (-1) limit to `dtype`, unless that would narrow the range."""
    rounded = torch.tensor(limit, dtype=dtype).double().item()
    return sign * max(sign * limit, sign * rounded)


def _limit(ratio: float | None, count: int) -> float:
    return math.inf if ratio is None else share(ratio, count)
