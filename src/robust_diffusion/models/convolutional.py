"""PyG's graph convolutions with this package's sums over edges, and baselines that stack them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch_geometric import nn as pyg

from robust_diffusion.checks import Count, Layers, Probability, Width, validated
from robust_diffusion.errors import TrainingError
from robust_diffusion.models.propagating import linear_layers
from robust_diffusion.models.stack import (
    Apply,
    HiddenStep,
    LayerStack,
    NormalizedStack,
    check_hidden_layers,
    layer_widths,
    run_layer,
)
from robust_diffusion.operators import (
    AnyFeatures,
    Graph,
    gather_dst,
    gather_src,
    graph_with_degree,
    mean_weights,
    row_softmax,
    spmm,
    symmetric_weights,
)

SMALLEST_SQUARE = 1e-12
"""Keeps the gradient of a square root finite at 0."""

POOLED_AT_A_TIME = 320
"""Channels of GraphSAGE's projection that are computed at a time, so that they stay in cache even
if there are thousands, as for bags of words.

The 302 features of GRB's Cora are a single part, so that its published runs keep their bits.
"""


def linear(x: AnyFeatures, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute `F.linear`."""
    return F.linear(x, weight, bias) if isinstance(x, Tensor) else x.linear(weight, bias)


class GCNConv(pyg.GCNConv):  # type: ignore[misc]
    """Weighted sum over incoming edges of x W, plus bias, with the graph's weights as passed."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, normalize=False)

    def forward(self, x: AnyFeatures, graph: Graph) -> Float[Tensor, "n d"]:
        """Return the features of every node's neighbourhood."""
        return spmm(graph.full_weight, run_layer(self.lin, x), graph) + self.bias  # type: ignore[no-any-return]


class GATConv(pyg.GATConv):  # type: ignore[misc]
    """Additive attention over incoming edges; the softmax is weighted by the edge weights."""

    def forward(self, x: AnyFeatures, graph: Graph) -> Float[Tensor, "n d"]:
        """Return the features of every node's neighbourhood, heads concatenated or averaged."""
        projected = run_layer(self.lin, x).view(-1, self.heads, self.out_channels)
        at_dst = (projected * self.att_dst).sum(-1)
        at_src = (projected * self.att_src).sum(-1)
        scores = gather_dst(at_dst, graph) + gather_src(at_src, graph)
        attention = row_softmax(F.leaky_relu(scores, self.negative_slope), graph)
        heads = [
            spmm(attention[:, h].contiguous(), projected[:, h], graph) for h in range(self.heads)
        ]
        out = torch.cat(heads, 1) if self.concat else torch.stack(heads).mean(0)
        return out + self.bias  # type: ignore[no-any-return]


class SAGEConv(pyg.SAGEConv):  # type: ignore[misc]
    """W x + W' times the root mean square of the projected neighbours over incoming edges.

    With `project_root`, the node itself is projected too: relu(P x) instead of x.

    Deviation: Hamilton et al. pool by the maximum. GRB pools by the root mean square, as here,
    since powers closer to the maximum make the gradient explode.
    """

    def __init__(self, in_channels: int, out_channels: int, *, project_root: bool = False) -> None:
        super().__init__(in_channels, out_channels, project=True)
        self.project_root = project_root

    def forward(self, x: AnyFeatures, graph: Graph) -> Float[Tensor, "n d"]:
        """Return the features of every node and its neighbourhood; the weights form a mean."""
        weights, biases = (
            part.split(POOLED_AT_A_TIME) for part in (self.lin.weight, self.lin.bias)
        )
        pooled, roots = [], []
        for weight, bias in zip(weights, biases, strict=True):
            projected = linear(x, weight, bias).relu()
            squares = spmm(graph.full_weight, projected.square(), graph)
            pooled.append(torch.sqrt(squares + SMALLEST_SQUARE))
            if self.project_root:
                roots.append(projected)
        root = torch.cat(roots, 1) if self.project_root else x
        return self.lin_l(torch.cat(pooled, 1)) + run_layer(self.lin_r, root)  # type: ignore[no-any-return]


class GINConv(pyg.GINConv):  # type: ignore[misc]
    """MLP of (1 + eps) x plus the weighted sum over incoming edges.

    The MLP begins with a Linear. If that narrows the features, as in the first layer, it is applied
    before the sum, which then has fewer channels; both are linear, so the order does not matter.
    """

    def forward(self, x: AnyFeatures, graph: Graph) -> Float[Tensor, "n d"]:
        """Return the features of every node and its neighbourhood; the graph has no self-loops."""
        first = self.nn[0]
        if first.in_features <= first.out_features:
            x = x if isinstance(x, Tensor) else x.dense()
            return self.nn(self._summed(x, graph))  # type: ignore[no-any-return]
        summed = self._summed(linear(x, first.weight), graph) + first.bias
        return self.nn[1:](summed)  # type: ignore[no-any-return]

    def _summed(self, x: Tensor, graph: Graph) -> Tensor:
        return (1 + self.eps) * x + spmm(graph.full_weight, x, graph)  # type: ignore[no-any-return]


@validated("model")
class GCN(NormalizedStack):
    """Graph convolutional network: relu(D^{-1/2} (A + I) D^{-1/2} X W) per layer.

    Reference: Kipf and Welling 2017, arXiv:1609.02907; as GRB configures it.

    Args:
        in_channels: Number of input features.
        hidden_channels: Width of every hidden layer, or one width each.
        out_channels: Number of classes.
        num_layers: Number of layers.
        layer_norm: Normalise the features at the entry of each layer.
        dropout: Probability of dropping a feature at the end of each hidden layer, in [0, 1).

    Examples:
        >>> import torch
        >>> from robust_diffusion.models import GCN
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GCN(5, 8, out_channels=3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        *,
        out_channels: Count,
        num_layers: Layers = 3,
        layer_norm: bool = False,
        dropout: Probability = 0.5,
    ) -> None:
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        super().__init__(widths, layer_norm=layer_norm, dropout=dropout)
        self.stack(gcn_convs(widths))


def gcn_convs(widths: Sequence[int]) -> list[GCNConv]:
    """Create convolutions between layers of these widths, initialised as in GRB."""
    convs = [GCNConv(before, after) for before, after in pairwise(widths)]
    for conv in convs:
        nn.init.xavier_normal_(conv.lin.weight, gain=nn.init.calculate_gain("relu"))
    return convs


@validated("model")
class GAT(LayerStack):
    """Graph attention network: additive attention, concatenated heads, one head in the last layer.

    Reference: Velickovic et al. 2018, arXiv:1710.10903; as GRB configures it.

    Args:
        in_channels: Number of input features; see `GCN` for this and all arguments not listed.
        hidden_channels: Width of every head of the hidden layers, or one width each.
        heads: Number of heads of the hidden layers, at least 1.

    Examples:
        >>> import torch
        >>> from robust_diffusion.models import GAT
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GAT(5, 8, out_channels=3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    activation = staticmethod(F.leaky_relu)

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        *,
        out_channels: Count,
        heads: Width = 4,
        num_layers: Layers = 3,
        layer_norm: bool = True,
        dropout: Probability = 0.5,
    ) -> None:
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        super().__init__(widths, layer_norm=layer_norm, dropout=dropout)
        wide = [widths[0], *(heads * width for width in widths[1:-1])]
        per_layer = [heads] * (len(wide) - 1) + [1]
        sizes = zip(wide, widths[1:], per_layer, strict=True)
        self.stack((GATConv(size, out, heads=count) for size, out, count in sizes), wide)

    def along(self, x: AnyFeatures, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """Return the function that applies a layer along these edges."""
        graph = Graph.from_edge_index(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
        return lambda conv, x: conv(x, graph)


@validated("model")
class GIN(LayerStack):
    """Graph isomorphism network: MLP((1 + eps) x + sum of neighbours), then an MLP for the classes.

    The last of the layers is the classifier, an MLP of two layers that sees no edges; the others
    are convolutions, their MLPs of two layers with batch norm.

    Reference: Xu et al. 2019, arXiv:1810.00826; as GRB configures it.

    Args:
        in_channels: Number of input features; see `GCN` for this and all arguments not listed.
        num_layers: Number of layers, the classifier included, at least 1.
        batch_norm: Normalise each channel over the nodes at the end of each convolution's MLP.

    Examples:
        >>> import torch
        >>> from robust_diffusion.models import GIN
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GIN(5, 8, out_channels=3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        *,
        out_channels: Count,
        batch_norm: bool = True,
        num_layers: Layers = 3,
        layer_norm: bool = True,
        dropout: Probability = 0.5,
    ) -> None:
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        super().__init__(widths, layer_norm=layer_norm, dropout=dropout)
        self.batch_norm = batch_norm
        *inner, out_channels = widths
        convs = [
            GINConv(_mlp(before, after, batch_norm=batch_norm), train_eps=True)
            for before, after in pairwise(inner)
        ]
        hidden, classes = linear_layers([inner[-1], inner[-1], out_channels])
        head = nn.Sequential(hidden, nn.ReLU(), nn.Dropout(self.dropout.p), classes)
        self.stack([*convs, head])
        self.norms[-1] = nn.Identity()  # batch norm has done it

    def along(self, x: AnyFeatures, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """Return the function that applies a convolution along these edges, without self-loops."""
        if self.training and self.batch_norm and x.size(0) == 1 < len(self.layers):
            raise TrainingError(
                "model.batch_norm=true: expected two nodes or more in a batch, got 1; train on "
                "more nodes or use model.batch_norm=false"
            )
        graph = Graph.from_edge_index(
            edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype, self_loops=False
        )
        return lambda layer, x: (
            layer(x, graph) if isinstance(layer, GINConv) else run_layer(layer, x)
        )


def _mlp(in_channels: int, out_channels: int, *, batch_norm: bool) -> nn.Module:
    first, second = linear_layers([in_channels, out_channels, out_channels])
    norm = nn.BatchNorm1d(out_channels) if batch_norm else nn.Identity()
    if batch_norm:
        second.register_parameter("bias", None)  # batch norm subtracts it again
    return nn.Sequential(first, nn.ReLU(), second, norm)


_Variant = Literal["original", "grb"]
"""Root term of a layer: `original` uses x, `grb` uses relu(P x), as for neighbours."""


@validated("model")
class GraphSAGE(NormalizedStack):
    """GraphSAGE with pooling: W x + W' pool over the neighbourhood of relu(P x), on unit features.

    With `variant="grb"`, the first term is W relu(P x) instead of W x.

    Reference: Hamilton et al. 2017, arXiv:1706.02216; as GRB configures it, see `SAGEConv`.

    Args:
        in_channels: Number of input features; see `GCN` for this and all arguments not listed.
        variant: `original` for the published model, `grb` for W relu(P x) in place of W x.

    Examples:
        >>> import torch
        >>> from robust_diffusion.models import GraphSAGE
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GraphSAGE(5, 8, out_channels=3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        *,
        out_channels: Count,
        variant: _Variant = "original",
        num_layers: Layers = 3,
        layer_norm: bool = True,
        dropout: Probability = 0.5,
    ) -> None:
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        super().__init__(widths, layer_norm=layer_norm, dropout=dropout)
        project_root = variant == "grb"
        pairs = pairwise(widths)
        self.stack(SAGEConv(before, after, project_root=project_root) for before, after in pairs)

    def along(self, *args: Any) -> Apply:
        """Return the function that applies a layer to unit features along these edges."""
        apply = super().along(*args)

        def apply_to_unit(conv: nn.Module, x: AnyFeatures) -> Tensor:
            eps = 1e-6  # keeps the gradient of a node without features finite
            x = F.normalize(x, dim=1, eps=eps) if isinstance(x, Tensor) else x.normalize(eps)
            return apply(conv, x)

        return apply_to_unit

    def normalized(self, graph: Graph, degree: Float[Tensor, " n"]) -> Float[Tensor, " e"]:
        """Return the edge weights of D^-1 (A + I)."""
        return mean_weights(graph, degree)


SMALLEST_VARIANCE = 1e-8
"""Keeps the gradient of the standard deviation finite."""


@validated("model")
class RobustGCN(nn.Module):
    """Graph convolution of Gaussians, in which uncertain neighbours count less.

    With the attention a = exp(-V): M <- D^{-1/2} (A + I) D^{-1/2} (M * a) and
    V <- D^{-1} (A + I) D^{-1} (V * a^2). Training draws the logits from N(M, V).

    Reference: Zhu et al. 2019, doi:10.1145/3292500.3330851; as GRB configures it, without the
    original's penalties on the first layer.

    Deviation: GRB also draws the logits at test time, so its accuracy is random; here they are the
    means unless `sample_at_test` is true.

    Args:
        in_channels: Number of input features; see `GCN` for this and all arguments not listed.
        sample_at_test: Also draw the logits at test time.

    Examples:
        >>> import torch
        >>> from robust_diffusion.models import RobustGCN
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> RobustGCN(5, 8, out_channels=3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    normalizes_by_degree = True
    takes_features = True

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        *,
        out_channels: Count,
        num_layers: Layers = 3,
        dropout: Probability = 0.5,
        sample_at_test: bool = False,
    ) -> None:
        super().__init__()
        pairs = list(pairwise(layer_widths(in_channels, hidden_channels, out_channels, num_layers)))
        self.mean = nn.ModuleList(nn.Linear(before, after) for before, after in pairs)
        # The first layer computes its variance from its mean.
        self.variance = nn.ModuleList(nn.Linear(before, after) for before, after in pairs[1:])
        self.dropout = nn.Dropout(dropout)
        self.sample_at_test = sample_at_test

    def forward(
        self,
        x: AnyFeatures,
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
        degree: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Return class logits of every node, drawn or their means; `degree` as for `GCN`."""
        graph, degree = graph_with_degree(x, edge_index, edge_weight, degree)
        weights = _weights(graph, degree)
        mean = run_layer(self.mean[0], x)
        mean, variance = _convolve(mean, mean, weights, graph)
        for to_mean, to_variance in zip(self.mean[1:], self.variance, strict=True):
            mean, variance = self.dropout(F.elu(mean)), self.dropout(F.elu(variance))
            mean, variance = _convolve(to_mean(mean), to_variance(variance), weights, graph)
        if not (self.training or self.sample_at_test):
            return mean
        return mean + torch.randn_like(mean) * torch.sqrt(variance + SMALLEST_VARIANCE)

    def hidden_step(self, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]) -> HiddenStep:
        """Return the second convolution, of means and variances; see `HasHiddenStep`."""
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
