"""Graphs that are audited, and the rules that they break."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from torch import Tensor

ViolationKind = Literal["injection", "modification"]
Level = Literal["error", "warning"]

_SHOWN = 3
"""Offenders that a message names."""

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
    "edge_weight": "{0} edges have a weight, the first {1}; all must be 1. An edge that is listed "
    "twice has the weight 2: merge_duplicates counts it once",
    "num_nodes": "{nodes} nodes; the clean graph has {clean}, and the {kind} {allowed}",
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
"""Message of each rule, with places {0} for the number of offenders and {1} for the first few."""


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
    """Features and edges, on the CPU."""
    assert graph.x is not None
    assert graph.edge_index is not None
    return graph.x.detach().cpu(), graph.edge_index.detach().cpu()


@dataclass(frozen=True)
class Violation:
    """One rule that a perturbed graph breaks."""

    code: str  # the rule
    message: str  # one line: what, how often, the first offenders, and what is allowed
    level: Level = "error"  # A `warning` is no breach of the budget


class Violations(list[Violation]):
    """The rules that a graph breaks, in the order in which they are looked at."""

    def add(
        self, code: str, offenders: Tensor | int, values: Tensor | None = None, **details: object
    ) -> None:
        """Add a violation if there are offenders: nodes, pairs of nodes as 2 x k, or their number.

        The message shows `values`, one of each, and `details`.
        """
        count, names = offenders if isinstance(offenders, int) else offenders.size(-1), list[str]()
        if isinstance(offenders, Tensor):
            first = offenders[..., :_SHOWN].t().tolist()
            names = [f"{of[0]}-{of[1]}" if offenders.ndim == 2 else f"node {of}" for of in first]
        if values is not None:
            shown = values[: len(names)].tolist()
            names = [f"{name} ({value:.7g})" for name, value in zip(names, shown, strict=True)]
        if count:
            listed = ", ".join(names) + (", ..." if count > _SHOWN else "")
            message = _RULES[code].format(count, listed, **details)
            level: Level = "warning" if code == "not_a_target" else "error"
            self.append(Violation(code, message, level))
