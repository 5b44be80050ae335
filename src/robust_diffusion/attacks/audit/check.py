"""Check of a perturbed graph against its budget."""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from robust_diffusion.attacks.audit.structure import UndirectedEdges
from robust_diffusion.attacks.audit.violation import (
    GraphLike,
    Kind,
    Violation,
    first,
    nodes,
    pairs,
)
from robust_diffusion.checks import check_choice


class _Changes(NamedTuple):
    """Original nodes whose features are not what they were."""

    nodes: Tensor
    before: Tensor
    after: Tensor


def audit(
    clean: GraphLike,
    perturbed: GraphLike,
    *,
    kind: Kind,
    max_injected_nodes: int | None = None,
    max_edges_per_injected_node: int | None = None,
    max_injected_edges: int | None = None,
    feature_limits: Sequence[float] | None = None,
    node_ratio: float | None = None,
    edge_ratio: float | None = None,
    epsilon: float | None = None,
    target_nodes: Int[Tensor, " t"] | None = None,
) -> list[Violation]:
    """Check a perturbed graph against its clean one; nothing that the attack says is believed.

    Of both kinds: types, shapes, finite values, and a simple undirected graph. An injection leaves
    original nodes and edges as they are; a modification has the same nodes, changes features of
    target nodes and flips edges that touch one. All limits are those of `Budget`, whose fields can
    be passed as they are; those of the other kind are not looked at.

    Args:
        clean: The graph before the attack, simple and undirected.
        perturbed: The graph after it, original nodes first.
        kind: What the attack may do.
        max_injected_nodes: Most nodes injected; this and all others but `feature_limits`: `None`
            for no limit.
        max_edges_per_injected_node: Most undirected edges of one injected node.
        max_injected_edges: Most undirected edges with an injected end.
        feature_limits: Smallest and largest feature value that may be written; `None` for those of
            the clean graph. Limits count as the features' type rounds them.
        node_ratio: Share of the target nodes whose features may change.
        edge_ratio: Share of the undirected edges at target nodes that may be flipped.
        epsilon: Largest change of one feature; more by its rounding is not held against it.
        target_nodes: Nodes under attack; `None` for all. An injected edge to another node is a
            warning, since no budget forbids it.

    Returns:
        What is broken, each rule at most once; empty if nothing is.

    Raises:
        ConfigError: An unknown kind.
    """
    check_choice("kind", kind, get_args(Kind))
    (x, edge_index), (reference, clean_edges) = _parts(perturbed), _parts(clean)
    if x.ndim != 2 or x.size(1) != reference.size(1):
        message = f"features have shape {tuple(x.shape)}, not (n, {reference.size(1)})"
        return [Violation("features_shape", message)]
    n = reference.size(0)
    base = max(n, x.size(0))
    edges = UndirectedEdges(edge_index, x.size(0), base)
    original = UndirectedEdges(clean_edges, n, base)
    targets = torch.full((n,), target_nodes is None)
    if target_nodes is not None:
        targets[target_nodes.cpu()] = True
    found = [*_form(x, reference), *edges.violations]
    if x.size(0) < n or (kind == "modification" and x.size(0) > n):
        allowed = {"injection": "only adds some", "modification": "keeps them"}[kind]
        message = f"{x.size(0)} nodes; the clean graph has {n}, and the {kind} {allowed}"
        found.append(Violation("num_nodes", message))
    limits = feature_limits or (reference.min().item(), reference.max().item())
    kept = min(n, x.size(0))
    moved = (x[:kept] != reference[:kept]).any(1).nonzero()[:, 0]
    changes = _Changes(moved, reference[moved], x[moved])
    if kind == "injection":
        return [
            *found,
            *_originals(changes, edges, original, n),
            *_injected(
                *(edges, x.size(0), targets),
                *(max_injected_nodes, max_edges_per_injected_node, max_injected_edges),
            ),
            *_beyond_limits(x[n:], torch.arange(n, base), limits),
        ]
    return [
        *found,
        *_changed(changes, targets, node_ratio),
        *_largest_change(changes, epsilon),
        *_beyond_limits(changes.after, changes.nodes, limits, changes.before),
        *_flipped(edges, original, targets, edge_ratio),
    ]


def _parts(graph: GraphLike) -> tuple[Tensor, Tensor]:
    assert graph.x is not None
    assert graph.edge_index is not None
    return graph.x.detach().cpu(), graph.edge_index.detach().cpu()


def _found(
    code: str,
    count: int,
    offenders: Iterable[str],
    message: str,
    level: Literal["error", "warning"] = "error",
) -> list[Violation]:
    """A violation if there are offenders; their number and the first go into the message."""
    shown = first(offenders, count)
    return [Violation(code, message.format(count, shown), level)] if count else []


def _form(x: Tensor, reference: Tensor) -> list[Violation]:
    """Features of another type than the clean graph's, or not finite."""
    found = []
    if x.dtype != reference.dtype:
        message = f"features are of type {x.dtype}; the clean graph's are {reference.dtype}"
        found.append(Violation("features_dtype", message))
    bad = ~x.isfinite()
    rows = bad.any(1).nonzero()[:, 0]
    message = f"{int(bad.sum())} features are NaN or infinite, the first at {{1}}; "
    return found + _found("not_finite", rows.numel(), nodes(rows), f"{message}all must be finite")


def _beyond_limits(
    x: Tensor, numbers: Tensor, limits: Sequence[float], before: Tensor | None = None
) -> list[Violation]:
    """Features of some nodes out of range, which counts as the type of `x` rounds it.

    One that was out of range before may be anything up to that.
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
    if not rows.any():
        return []
    worst = values[rows].gather(1, beyond[rows].argmax(1, keepdim=True))[:, 0]
    message = (
        f"{int((beyond > 0).sum())} features are out of range, the first at "
        f"{first(nodes(numbers[rows], worst), int(rows.sum()))}; the range is "
        f"{limits[0]:g}..{limits[1]:g}"
    )
    return [Violation("feature_limits", message)]


def _outwards(limit: float, dtype: torch.dtype, sign: int) -> float:
    """An upper (1) or lower (-1) limit, or the nearest number of a type where that lies beyond."""
    rounded = torch.tensor(limit, dtype=dtype).double().item()
    return sign * max(sign * limit, sign * rounded)


def _originals(
    changes: _Changes, edges: UndirectedEdges, original: UndirectedEdges, n: int
) -> list[Violation]:
    """Original nodes and edges that are not what they were."""
    added = edges.ends(edges.without(original))
    added = added[:, added[1] < n]
    removed = original.ends(original.without(edges))
    between = "{} edges between original nodes are "
    return [
        *_found(
            *("original_features", changes.nodes.numel(), nodes(changes.nodes)),
            "{} original nodes have other features, the first {}; none may",
        ),
        *_found(
            *("original_edges_added", added.size(1), pairs(added)),
            between + "added, the first {}; none may be",
        ),
        *_found(
            *("original_edges_removed", removed.size(1), pairs(removed)),
            between + "removed, the first {}; none may be",
        ),
    ]


def _injected(
    edges: UndirectedEdges,
    num_nodes: int,
    targets: Bool[Tensor, " n"],
    max_nodes: int | None,
    per_node: int | None,
    in_all: int | None,
) -> list[Violation]:
    """Limits of the new nodes and their edges that are exceeded; edges away from the targets."""
    n = targets.numel()
    ends = edges.ends()
    ends = ends[:, ends[1] >= n]
    degree = torch.bincount(ends[ends >= n] - n)
    over = (degree > (ends.size(1) if per_node is None else per_node)).nonzero()[:, 0]
    away = ends[:, ends[0] < n]
    away = away[:, ~targets[away[0]]]
    new, total = num_nodes - n, ends.size(1)
    return [
        *_found(
            *("injected_nodes", new if max_nodes is not None and new > max_nodes else 0, ()),
            f"{{}} nodes are injected; at most {max_nodes} may be",
        ),
        *_found(
            *("edges_per_injected_node", over.numel(), nodes(over + n, degree[over])),
            f"{{}} injected nodes have too many edges, the first {{}}; at most {per_node} each",
        ),
        *_found(
            *("injected_edges", total if in_all is not None and total > in_all else 0, ()),
            f"{{}} edges are injected; at most {in_all} may be in all",
        ),
        *_found(
            *("not_a_target", away.size(1), pairs(away)),
            "{} injected edges lead to nodes that are not under attack, the first {}",
            level="warning",
        ),
    ]


def _changed(
    changes: _Changes, targets: Bool[Tensor, " n"], node_ratio: float | None
) -> list[Violation]:
    elsewhere, count = changes.nodes[~targets[changes.nodes]], changes.nodes.numel()
    limit = _limit(node_ratio, num_targets := int(targets.sum()))
    return [
        *_found(
            *("changed_elsewhere", elsewhere.numel(), nodes(elsewhere)),
            "{} nodes that are not under attack have other features, the first {}; none may",
        ),
        *_found(
            *("changed_nodes", count if count > limit else 0, nodes(changes.nodes)),
            f"{{}} nodes have other features, the first {{}}; at most {limit} may "
            f"({node_ratio} of {num_targets})",
        ),
    ]


def _largest_change(changes: _Changes, epsilon: float | None) -> list[Violation]:
    if epsilon is None:
        return []
    after, before, dtype = changes.after.double(), changes.before.double(), changes.before.dtype
    change = (after - before).abs()
    rounding = torch.finfo(dtype).eps * torch.maximum(after.abs(), before.abs())
    over = change > _outwards(epsilon, dtype, 1) + rounding
    rows = over.any(1)
    if not rows.any():
        return []
    where = first(nodes(changes.nodes[rows], change[rows].max(1).values), int(rows.sum()))
    message = f"{int(over.sum())} features change by too much, the first at {where}; "
    return [Violation("epsilon", f"{message}at most {epsilon:g} each")]


def _flipped(
    edges: UndirectedEdges,
    original: UndirectedEdges,
    targets: Bool[Tensor, " n"],
    edge_ratio: float | None,
) -> list[Violation]:
    added, removed = edges.without(original), original.without(edges)
    flipped = edges.ends(torch.cat([added, removed]))
    attacked = torch.zeros(edges.base, dtype=torch.bool)
    attacked[: targets.numel()] = targets
    elsewhere, count = flipped[:, ~attacked[flipped].any(0)], flipped.size(1)
    limit = _limit(edge_ratio, at_targets := int(attacked[original.ends()].any(0).sum()))
    return [
        *_found(
            *("flipped_elsewhere", elsewhere.size(1), pairs(elsewhere)),
            "{} edges that touch no node under attack are flipped, the first {}; none may be",
        ),
        *_found(
            *("flipped_edges", count if count > limit else 0, pairs(flipped)),
            f"{{}} edges are flipped ({added.numel()} added, {removed.numel()} removed), the first "
            f"{{}}; at most {limit} may be ({edge_ratio} of {at_targets})",
        ),
    ]


def _limit(ratio: float | None, count: int) -> float:
    # Exact in decimals: 0.29 of 100 are 29, and 28 in floats.
    return math.inf if ratio is None else math.floor(Fraction(str(ratio)) * count)
