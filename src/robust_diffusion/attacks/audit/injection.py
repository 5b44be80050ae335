"""Limits of an injection, which adds nodes and their edges."""

import torch
from jaxtyping import Bool
from torch import Tensor

from robust_diffusion.attacks.audit.features import Changes, limit_violations
from robust_diffusion.attacks.audit.structure import UndirectedEdges
from robust_diffusion.attacks.audit.violation import Violation, first, nodes, pairs


def injection_violations(
    x: Tensor,
    changes: Changes,
    edges: UndirectedEdges,
    original: UndirectedEdges,
    targets: Bool[Tensor, " n"],
    *,
    limits: tuple[float, float],
    max_injected_nodes: int | None,
    max_edges_per_injected_node: int | None,
    max_injected_edges: int | None,
) -> list[Violation]:
    """Original nodes and edges that are not what they were, and limits that are exceeded."""
    n = targets.numel()
    return [
        *_original_nodes(changes),
        *_original_edges(edges, original, n),
        *_injected_nodes(x.size(0) - n, max_injected_nodes),
        *_injected_edges(edges, n, max_edges_per_injected_node, max_injected_edges),
        *limit_violations(x[n:], torch.arange(n, max(n, x.size(0))), limits),
        *_away_from_targets(edges, targets),
    ]


def _original_nodes(changes: Changes) -> list[Violation]:
    if not (count := changes.nodes.numel()):
        return []
    where = first(nodes(changes.nodes), count)
    message = f"{count} original nodes have other features, the first {where}; none may"
    return [Violation("original_features", message)]


def _original_edges(edges: UndirectedEdges, original: UndirectedEdges, n: int) -> list[Violation]:
    found = []
    added = edges.ends(edges.without(original))
    added = added[:, added[1] < n]
    removed = original.ends(original.without(edges))
    for code, pair, verb in (
        ("original_edges_added", added, "added"),
        ("original_edges_removed", removed, "removed"),
    ):
        if count := pair.size(1):
            message = (
                f"{count} edges between original nodes are {verb}, the first "
                f"{first(pairs(pair), count)}; none may be"
            )
            found.append(Violation(code, message))
    return found


def _injected_nodes(count: int, limit: int | None) -> list[Violation]:
    if limit is None or count <= limit:
        return []
    return [Violation("injected_nodes", f"{count} nodes are injected; at most {limit} may be")]


def _injected_edges(
    edges: UndirectedEdges, n: int, per_node: int | None, in_all: int | None
) -> list[Violation]:
    found = []
    ends = edges.ends()
    ends = ends[:, ends[1] >= n]
    degree = torch.bincount(ends[ends >= n] - n)
    if per_node is not None and (degree > per_node).any():
        over = (degree > per_node).nonzero()[:, 0]
        message = (
            f"{over.numel()} injected nodes have too many edges, the first "
            f"{first(nodes(over + n, degree[over]), over.numel())}; at most {per_node} each"
        )
        found.append(Violation("edges_per_injected_node", message))
    if in_all is not None and (count := ends.size(1)) > in_all:
        message = f"{count} edges are injected; at most {in_all} may be in all"
        found.append(Violation("injected_edges", message))
    return found


def _away_from_targets(edges: UndirectedEdges, targets: Bool[Tensor, " n"]) -> list[Violation]:
    n = targets.numel()
    ends = edges.ends()
    ends = ends[:, (ends[0] < n) & (ends[1] >= n)]
    away = ends[:, ~targets[ends[0]]]
    if not (count := away.size(1)):
        return []
    message = (
        f"{count} injected edges lead to nodes that are not under attack, the first "
        f"{first(pairs(away), count)}"
    )
    return [Violation("not_a_target", message, level="warning")]
