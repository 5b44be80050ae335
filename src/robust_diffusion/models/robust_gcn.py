"""RobustGCN."""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from robust_diffusion.checks import Count, Layers, Probability, Width, validated
from robust_diffusion.models.stack import HiddenStep, check_hidden_layers, layer_widths
from robust_diffusion.operators import Graph, graph_with_degree, spmm, symmetric_weights

SMALLEST_VARIANCE = 1e-8
"""Keeps the gradient of the standard deviation finite."""


@validated("model")
class RobustGCN(nn.Module):
    """Graph convolution of Gaussians: means and variances, uncertain neighbours counting less.

    With the attention a = exp(-V): M <- D^{-1/2} (A + I) D^{-1/2} (M * a) and
    V <- D^{-1} (A + I) D^{-1} (V * a^2). Training draws the logits from N(M, V).

    Reference: Zhu et al. 2019, doi:10.1145/3292500.3330851; as GRB configures it, without the
    original's penalties on the first layer.

    Deviation: GRB draws the logits at test time too, so its accuracy is random; here they are the
    means unless `sample_at_test` says otherwise.

    Args:
        in_channels: Number of input features; it and those not named here are as for `GCN`.
        sample_at_test: Draw the logits at test time too.

    Examples:
        >>> import torch
        >>> from robust_diffusion import RobustGCN
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> RobustGCN(5, 8, 3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    normalizes_by_degree = True

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        out_channels: Count,
        *,
        num_layers: Layers = 3,
        dropout: Probability = 0.5,
        sample_at_test: bool = False,
    ) -> None:
        super().__init__()
        pairs = list(pairwise(layer_widths(in_channels, hidden_channels, out_channels, num_layers)))
        self.mean = nn.ModuleList(nn.Linear(before, after) for before, after in pairs)
        # The first layer's variance is made from its mean.
        self.variance = nn.ModuleList(nn.Linear(before, after) for before, after in pairs[1:])
        self.dropout = nn.Dropout(dropout)
        self.sample_at_test = sample_at_test

    @property
    def samples(self) -> bool:
        """True if two passes in eval mode differ; see `adaptive_form`."""
        return self.sample_at_test

    def forward(
        self,
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
        degree: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Class logits of every node, drawn or the mean; `degree` as for `GCN`."""
        graph, degree = graph_with_degree(x, edge_index, edge_weight, degree)
        weights = _weights(graph, degree)
        mean = self.mean[0](x)
        mean, variance = _convolve(mean, mean, weights, graph)
        for to_mean, to_variance in zip(self.mean[1:], self.variance, strict=True):
            mean, variance = self.dropout(F.elu(mean)), self.dropout(F.elu(variance))
            mean, variance = _convolve(to_mean(mean), to_variance(variance), weights, graph)
        if not (self.training or self.sample_at_test):
            return mean
        return mean + torch.randn_like(mean) * torch.sqrt(variance + SMALLEST_VARIANCE)

    def hidden_step(self, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]) -> HiddenStep:
        """The second convolution, of means and variances; see `HasHiddenStep`."""
        check_hidden_layers(len(self.mean))
        graph, degree = graph_with_degree(x, edge_index)
        weights = _weights(graph, degree)
        first = self.mean[0](x)
        convolved = _convolve(first, first, weights, graph)
        mean, variance = (self.dropout(F.elu(part)) for part in convolved)
        to_mean, to_variance = self.mean[1], self.variance[0]
        return HiddenStep(
            "aggregation",
            mean.size(1),
            lambda: _convolve(to_mean(mean), to_variance(variance), weights, graph)[0],
        )


def _weights(graph: Graph, degree: Tensor) -> tuple[Float[Tensor, " e"], Float[Tensor, " e"]]:
    return symmetric_weights(graph, degree), symmetric_weights(graph, degree, order=-1)


def _convolve(
    mean: Tensor, variance: Tensor, weights: tuple[Tensor, Tensor], graph: Graph
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]:
    mean, variance = F.elu(mean), F.relu(variance)
    attention = torch.exp(-variance)
    return (
        spmm(weights[0], mean * attention, graph),
        spmm(weights[1], variance * attention.square(), graph),
    )
