"""Limits of a modification, which changes features of targets and flips edges at them."""

import math
from fractions import Fraction

import torch
from jaxtyping import Bool
from torch import Tensor

from robust_diffusion.attacks.audit.features import Changes, limit_violations, rounded_outwards
from robust_diffusion.attacks.audit.structure import UndirectedEdges
from robust_diffusion.attacks.audit.violation import Violation, first, nodes, pairs


def modification_violations(
    changes: Changes,
    edges: UndirectedEdges,
    original: UndirectedEdges,
    targets: Bool[Tensor, " n"],
    *,
    limits: tuple[float, float],
    node_ratio: float | None,
    edge_ratio: float | None,
    epsilon: float | None,
) -> list[Violation]:
    """Changes of nodes and edges that are not under attack, and limits that are exceeded."""
    return [
        *_changed_nodes(changes, targets, node_ratio),
        *_largest_change(changes, epsilon),
        *limit_violations(changes.after, changes.nodes, limits, changes.before),
        *_flipped(edges, original, targets, edge_ratio),
    ]


def _changed_nodes(
    changes: Changes, targets: Bool[Tensor, " n"], node_ratio: float | None
) -> list[Violation]:
    found = []
    elsewhere = changes.nodes[~targets[changes.nodes]]
    if count := elsewhere.numel():
        message = (
            f"{count} nodes that are not under attack have other features, the first "
            f"{first(nodes(elsewhere), count)}; none may"
        )
        found.append(Violation("changed_elsewhere", message))
    if node_ratio is not None:
        limit = _share(node_ratio, int(targets.sum()))
        if (count := changes.nodes.numel()) > limit:
            message = (
                f"{count} nodes have other features, the first "
                f"{first(nodes(changes.nodes), count)}; at most {limit} may "
                f"({node_ratio:g} of {int(targets.sum())})"
            )
            found.append(Violation("changed_nodes", message))
    return found


def _largest_change(changes: Changes, epsilon: float | None) -> list[Violation]:
    if epsilon is None:
        return []
    after, before = changes.after.double(), changes.before.double()
    change = (after - before).abs()
    dtype = changes.before.dtype
    rounding = torch.finfo(dtype).eps * torch.maximum(after.abs(), before.abs())
    over = change > rounded_outwards(epsilon, dtype, 1) + rounding
    if not (count := int(over.sum())):
        return []
    rows = over.any(1)
    where = first(nodes(changes.nodes[rows], change[rows].max(1).values), int(rows.sum()))
    message = f"{count} features change by too much, the first at {where}; at most {epsilon:g} each"
    return [Violation("epsilon", message)]


def _flipped(
    edges: UndirectedEdges,
    original: UndirectedEdges,
    targets: Bool[Tensor, " n"],
    edge_ratio: float | None,
) -> list[Violation]:
    found = []
    added, removed = edges.without(original), original.without(edges)
    flipped = edges.ends(torch.cat([added, removed]))
    attacked = torch.zeros(edges.base, dtype=torch.bool)
    attacked[: targets.numel()] = targets
    elsewhere = flipped[:, ~attacked[flipped].any(0)]
    if count := elsewhere.size(1):
        message = (
            f"{count} edges that touch no node under attack are flipped, the first "
            f"{first(pairs(elsewhere), count)}; none may be"
        )
        found.append(Violation("flipped_elsewhere", message))
    if edge_ratio is not None:
        at_targets = int(attacked[original.ends()].any(0).sum())
        limit = _share(edge_ratio, at_targets)
        if (count := flipped.size(1)) > limit:
            message = (
                f"{count} edges are flipped ({added.numel()} added, {removed.numel()} removed), "
                f"the first {first(pairs(flipped), count)}; at most {limit} may be "
                f"({edge_ratio:g} of {at_targets})"
            )
            found.append(Violation("flipped_edges", message))
    return found


def _share(ratio: float, count: int) -> int:
    # Exact in decimals: 0.29 of 100 are 29, and 28 in floats.
    return math.floor(Fraction(str(ratio)) * count)
