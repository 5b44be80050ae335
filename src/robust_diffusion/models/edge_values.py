"""Models on a graph whose edges have values of their own."""

from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor, nn


class OnEdgeValues(nn.Module):
    """A model that takes the value of each edge for its weight.

    Args:
        model: Takes edge weights.
        values: The values of the whole graph's edges, attacked or not.
    """

    def __init__(self, model: nn.Module, values: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model = model
        self.values = values
        self.normalizes_by_degree = bool(getattr(model, "normalizes_by_degree", False))

    def forward(
        self,
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
        degree: Float[Tensor, " n"] | None = None,
        *,
        edge_values: Float[Tensor, " e"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Class logits of every node.

        Args:
            x: Node features.
            edge_index: Edges of the whole graph, or, with `edge_values`, of a part of it.
            edge_weight: What the values are multiplied by; 1 when absent.
            degree: As for `GCN`.
            edge_values: Values of the edges, where they are at hand.
        """
        values = self.values(edge_index) if edge_values is None else edge_values
        weight = values if edge_weight is None else values * edge_weight
        given = {} if degree is None else {"degree": degree}
        return self.model(x, edge_index, weight, **given)  # type: ignore[no-any-return]


def reads_edge_values(model: nn.Module) -> bool:
    """Whether GRB's code of a model reads the values of the adjacency matrix.

    GCN, RobustGCN and APPNP normalise them, GIN sums by them; GraphSAGE sets them to 1, GCN-SVD
    decomposes the matrix of ones, GAT and the graph PDEs attend along the edges alone.
    """
    return bool(getattr(model, "reads_edge_values", False))
