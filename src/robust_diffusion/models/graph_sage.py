"""GraphSAGE."""

from itertools import pairwise
from typing import Any, Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.models.stack import Apply, NormalizedStack, SAGEConv
from robust_diffusion.operators import Graph, mean_weights

_Variant = Literal["original", "grb"]
"""The node's own input to a layer: `original` takes x, `grb` takes relu(P x), as of neighbours."""


class GraphSAGE(NormalizedStack):
    """GraphSAGE with pooling: W x + W' pool over the neighbourhood of relu(P x), on unit features.

    With `variant="grb"` it is W relu(P x) in the place of W x.

    Reference: Hamilton et al. 2017, arXiv:1706.02216; as GRB configures it, see `SAGEConv`.

    Args:
        in_channels: Number of input features; it and those not named here are as for `GCN`.
        variant: The published one, or GRB's; see `_Variant`.

    Examples:
        >>> import torch
        >>> from robust_diffusion import GraphSAGE
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GraphSAGE(5, 8, 3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(self, *widths: Any, variant: _Variant = "original", **options: Any) -> None:
        super().__init__(*widths, **options)
        project_root = variant == "grb"
        pairs = pairwise(self.widths)
        self.stack(SAGEConv(before, after, project_root=project_root) for before, after in pairs)

    def along(self, *args: Any) -> Apply:
        """Every layer takes means along these edges, of unit features."""
        apply = super().along(*args)
        # The bound keeps the gradient of a node without features finite.
        return lambda conv, x: apply(conv, F.normalize(x, dim=1, eps=1e-6))

    def normalized(self, graph: Graph, degree: Float[Tensor, " n"]) -> Float[Tensor, " e"]:
        """Edge weights of D^-1 (A + I)."""
        return mean_weights(graph, degree)
