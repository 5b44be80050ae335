"""Check of a perturbed graph against its budget."""

from collections.abc import Sequence
from typing import get_args

import torch
from jaxtyping import Int
from torch import Tensor

from robust_diffusion.attacks.audit.features import Changes, form_violations
from robust_diffusion.attacks.audit.injection import injection_violations
from robust_diffusion.attacks.audit.modification import modification_violations
from robust_diffusion.attacks.audit.structure import UndirectedEdges
from robust_diffusion.attacks.audit.violation import GraphLike, Kind, Violation
from robust_diffusion.checks import check_choice


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
    found = [*form_violations(x, reference), *edges.violations]
    if x.size(0) < n or (kind == "modification" and x.size(0) > n):
        allowed = {
            "injection": "an injection only adds some",
            "modification": "a modification keeps them",
        }
        message = f"{x.size(0)} nodes; the clean graph has {n}, and {allowed[kind]}"
        found.append(Violation("num_nodes", message))
    low, high = feature_limits or (reference.min().item(), reference.max().item())
    changes = Changes(x, reference)
    if kind == "injection":
        return found + injection_violations(
            x,
            changes,
            edges,
            original,
            targets,
            limits=(low, high),
            max_injected_nodes=max_injected_nodes,
            max_edges_per_injected_node=max_edges_per_injected_node,
            max_injected_edges=max_injected_edges,
        )
    return found + modification_violations(
        changes,
        edges,
        original,
        targets,
        limits=(low, high),
        node_ratio=node_ratio,
        edge_ratio=edge_ratio,
        epsilon=epsilon,
    )


def _parts(graph: GraphLike) -> tuple[Tensor, Tensor]:
    assert graph.x is not None
    assert graph.edge_index is not None
    return graph.x.detach().cpu(), graph.edge_index.detach().cpu()
