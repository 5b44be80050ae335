"""The multi-layer perceptron (MLP), and models that propagate its predictions along the edges."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import pairwise
from math import comb
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from robust_diffusion.checks import (
    Count,
    Layers,
    NonNegative,
    Positive,
    Probability,
    Share,
    Steps,
    Width,
    validated,
)
from robust_diffusion.models.adaptive import SwitchableGradient
from robust_diffusion.models.stack import (
    Apply,
    HiddenStep,
    LayerStack,
    check_hidden_layers,
    layer_widths,
    run_layer,
)
from robust_diffusion.operators import (
    AnyFeatures,
    Gradient,
    Graph,
    gather_dst,
    gather_src,
    graph_with_degree,
    row_sum,
    spmm,
    symmetric_weights,
)
from robust_diffusion.operators.kernels.base import PropagationSteps
from robust_diffusion.operators.propagation import Propagator, propagator


@validated("model")
class MLP(LayerStack):
    """Multi-layer perceptron on each node's features alone: relu(X W + b) per layer.

    It ignores the edges, so its accuracy is the same under every attack that does not change the
    features of target nodes. A graph model is only robust if its accuracy stays above this.

    Reference: of this project; the control of every graph model. For the arguments see `GCN`.

    Examples:
        >>> import torch
        >>> from robust_diffusion.models import MLP
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> MLP(5, 8, out_channels=3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        *,
        out_channels: Count,
        num_layers: Layers = 3,
        layer_norm: bool = True,
        dropout: Probability = 0.5,
    ) -> None:
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        super().__init__(widths, layer_norm=layer_norm, dropout=dropout)
        self.stack(linear_layers(widths))

    def along(self, x: AnyFeatures, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """Return the function that applies a layer, which ignores the edges."""
        return run_layer


@validated("model")
class PropagatingMLP(LayerStack):
    """Base of MLPs whose predictions are propagated along the edges; see `propagated`.

    For the arguments see `LayerStack`.
    """

    normalizes_by_degree = True
    num_iterations: int  # steps of the propagation

    def __init__(self, widths: Sequence[int], *, layer_norm: bool, dropout: float) -> None:
        super().__init__(widths, layer_norm=layer_norm, dropout=dropout)
        self.stack(linear_layers(widths))

    def along(self, x: AnyFeatures, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        """Return the function that applies a layer of the MLP, which ignores the edges."""
        return run_layer

    def forward(
        self,
        x: AnyFeatures,
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
        degree: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Return class logits of every node; `degree` as for `GCN`."""
        graph, degree = graph_with_degree(x, edge_index, edge_weight, degree)
        return self.propagated(self.run(x, self.along(x, edge_index)), graph, degree)

    def hidden_step(self, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]) -> HiddenStep:
        """Return one step of the propagation at hidden width, with the edges' normalisation."""
        check_hidden_layers(len(self.layers))
        graph, degree = graph_with_degree(x, edge_index)
        state = self.activation(self.layers[0](self.norms[0](x)))
        once = copy(self)
        once.num_iterations = 1
        return HiddenStep(
            "aggregation", state.size(1), lambda: once.propagated(state, graph, degree)
        )

    @abstractmethod
    def propagated(
        self, local: Float[Tensor, "n c"], graph: Graph, degree: Float[Tensor, " n"]
    ) -> Float[Tensor, "n c"]:
        """Propagate the MLP's logits `local` along a graph with self-loops."""

    def predictions(self, x: AnyFeatures) -> Float[Tensor, "n c"]:
        """Return the predictions of the MLP, which are propagated."""
        return self.run(x, run_layer)

    def steps(self) -> PropagationSteps | None:
        """Return the steps of the propagation in evaluation; `None` if C++ does not know them."""
        return None

    def propagator(
        self, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"], targets: Int[Tensor, " t"]
    ) -> Propagator | None:
        """Return the propagation over this graph for attacks that evaluate it many times."""
        steps = self.steps()
        if steps is None:
            return None
        return propagator(self.predictions, x, edge_index, targets, steps)


def linear_layers(widths: Sequence[int]) -> list[nn.Module]:
    """Create linear layers between these widths, initialised as in GRB."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        linear = nn.Linear(before, after)
        nn.init.xavier_normal_(linear.weight, gain=nn.init.calculate_gain("relu"))
        layers.append(linear)
    return layers


_Variant = Literal["original", "grb"]
"""`original`: the published model. `grb`: GRB's code, where the walk restarts at its current state,
logits first pass ReLU and dropout, and dropped edges stay dropped, without scaling."""


@validated("model")
class APPNP(PropagatingMLP):
    """MLP, then personalised PageRank of its predictions: Z <- (1 - alpha) A Z + alpha H.

    With `variant="grb"`, alpha Z replaces alpha H, and Z starts at dropout(ReLU(H)): a lazy walk
    without restarts.

    Reference: Gasteiger et al. 2019, arXiv:1810.05997; as GRB configures it.

    Args:
        in_channels: Number of input features; see `GCN` for this and all arguments not listed.
        num_layers: Number of layers of the MLP.
        num_iterations: Propagation steps K, at least 0.
        teleport: Probability alpha of a restart at the node, in [0, 1].
        edge_dropout: Probability of dropping an edge in a training step of propagation, in [0, 1).
        variant: `original` for the published model; `grb` for GRB's code, where also dropped edges
            stay dropped in later steps, and the others are not scaled up.

    Examples:
        >>> import torch
        >>> from robust_diffusion.models import APPNP
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> APPNP(5, 8, out_channels=3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        *,
        out_channels: Count,
        num_iterations: Steps = 3,
        teleport: Share = 0.01,
        edge_dropout: Probability = 0.1,
        variant: _Variant = "original",
        num_layers: Layers = 3,
        layer_norm: bool = True,
        dropout: Probability = 0.5,
    ) -> None:
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        super().__init__(widths, layer_norm=layer_norm, dropout=dropout)
        self.num_iterations = num_iterations
        self.teleport = teleport
        self.edge_dropout = edge_dropout
        self.variant = variant

    def propagated(
        self, local: Float[Tensor, "n c"], graph: Graph, degree: Float[Tensor, " n"]
    ) -> Float[Tensor, "n c"]:
        """Run the steps of the walk."""
        weights, z = symmetric_weights(graph, degree), local
        if self.variant == "grb":
            z = self.dropout(self.activation(z))
        for step_weights in self._edges_kept(weights):
            z = self._propagated(z, local, step_weights, graph)
        return z

    def predictions(self, x: AnyFeatures) -> Float[Tensor, "n c"]:
        """Return the predictions of the MLP, after ReLU in GRB's code."""
        z = super().predictions(x)
        return self.activation(z) if self.variant == "grb" else z

    def steps(self) -> PropagationSteps:
        """Return the weights of the powers."""
        k, alpha = self.num_iterations, self.teleport
        if self.variant == "grb":
            weights = [comb(k, i) * (1 - alpha) ** i * alpha ** (k - i) for i in range(k + 1)]
        else:
            weights = [*(alpha * (1 - alpha) ** i for i in range(k)), (1 - alpha) ** k]
        return PropagationSteps(torch.tensor(weights, dtype=torch.float32))

    def hidden_step(self, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]) -> HiddenStep:
        """Return one step of the propagation, which has no layers, at hidden width."""
        check_hidden_layers(len(self.layers))
        graph, degree = graph_with_degree(x, edge_index)
        weights = symmetric_weights(graph, degree)
        state = self.activation(self.layers[0](self.norms[0](x)))
        return HiddenStep(
            "aggregation", state.size(1), lambda: self._propagated(state, state, weights, graph)
        )

    def _edges_kept(self, weights: Tensor) -> Iterator[Tensor]:
        """Yield the edge weights of each step of the propagation."""
        for _ in range(self.num_iterations):
            if self.variant == "original":
                yield F.dropout(weights, self.edge_dropout, training=self.training)
                continue
            if self.training:
                weights = weights * (torch.rand_like(weights) >= self.edge_dropout)
            yield weights

    def _propagated(self, z: Tensor, local: Tensor, weights: Tensor, graph: Graph) -> Tensor:
        restart = local if self.variant == "original" else z
        return (1 - self.teleport) * spmm(weights, z, graph) + self.teleport * restart


@validated("model")
class ElasticGNN(PropagatingMLP):
    """MLP, then steps towards a smooth signal Z near its predictions H.

    Z minimises lambda1 sum_e w_e |(D Z)_e| + lambda2 / 2 sum_e w_e |(D Z)_e|^2 + |Z - H|^2 / 2
    over the undirected edges e, where (D Z)_uv = Z_u / sqrt(d_u) - Z_v / sqrt(d_v) and the first
    norm is l1 or l2. Let gamma = 1 / (1 + lambda2), Y = gamma H + (1 - gamma) A Z, and U the dual,
    whose norm at each edge is at most lambda1. A step is
    U <- clip(U + D (Y - gamma D^T U) / (2 gamma)), Z <- Y - gamma D^T U.

    Reference: Liu et al. 2021, arXiv:2107.06996.

    Deviation: The paper has no edge weights; here both penalties are weighted by them.

    Args:
        in_channels: Number of input features; see `GCN` for this and all arguments not listed.
        num_layers: Number of layers of the MLP.
        num_iterations: Steps, at least 0.
        lambda1: Weight of the norms, at least 0; 0 gives APPNP.
        lambda2: Weight of their squares, at least 0.
        penalty: `l21` takes the Euclidean norm over channels, `l1` the sum of magnitudes.

    Examples:
        >>> import torch
        >>> from robust_diffusion.models import ElasticGNN
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> ElasticGNN(5, 8, out_channels=3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        *,
        out_channels: Count,
        num_iterations: Steps = 10,
        lambda1: NonNegative = 3.0,
        lambda2: NonNegative = 3.0,
        penalty: Literal["l1", "l21"] = "l21",
        num_layers: Layers = 3,
        layer_norm: bool = True,
        dropout: Probability = 0.5,
    ) -> None:
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        super().__init__(widths, layer_norm=layer_norm, dropout=dropout)
        self.num_iterations = num_iterations
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.penalty = penalty

    def propagated(
        self, local: Float[Tensor, "n c"], graph: Graph, degree: Float[Tensor, " n"]
    ) -> Float[Tensor, "n c"]:
        """Run the steps towards the minimum."""
        weights, gamma = symmetric_weights(graph, degree), 1 / (1 + self.lambda2)
        scale = degree.clamp_min(1e-38).rsqrt()[:, None]

        def at_nodes(dual: Tensor) -> Tensor:
            return scale * row_sum(graph.full_weight[:, None] * dual, graph)

        z = local
        # One value per direction of an edge, from the view of the node it points to.
        dual = local.new_zeros(graph.num_edges, local.size(1))
        for _ in range(self.num_iterations):
            y = gamma * local + (1 - gamma) * spmm(weights, z, graph)
            ahead = scale * (y - gamma * at_nodes(dual))
            apart = gather_dst(ahead, graph) - gather_src(ahead, graph)
            dual = self._clipped(dual + apart / (2 * gamma))
            z = y - gamma * at_nodes(dual)
        return z

    def steps(self) -> PropagationSteps | None:
        """Return the penalties; `l1` is not compiled."""
        if self.penalty == "l1":
            return None
        return PropagationSteps(None, self.lambda1, self.lambda2, self.num_iterations)

    def _clipped(self, dual: Float[Tensor, "e c"]) -> Float[Tensor, "e c"]:
        if self.penalty == "l1":
            return dual.clamp(-self.lambda1, self.lambda1)
        squared = dual.square().sum(1, keepdim=True)
        outside = squared > self.lambda1**2
        return dual * torch.where(
            outside, self.lambda1 * torch.where(outside, squared, 1).rsqrt(), 1
        )


@validated("model")
class GPRGNN(PropagatingMLP):
    """MLP, then generalised PageRank of its predictions: sum over k of w_k A^k H, w learned.

    The weights start as those of a walk with restarts, w_k = alpha (1 - alpha)^k, with
    w_K = (1 - alpha)^K for the last one. Negative weights suit heterophilous graphs.

    Reference: Chien et al. 2021, arXiv:2006.07988.

    Args:
        in_channels: Number of input features; see `GCN` for this and all arguments not listed.
        num_layers: Number of layers of the MLP.
        num_iterations: Propagation steps K, at least 0.
        teleport: Initial probability alpha of a restart, in [0, 1].

    Examples:
        >>> import torch
        >>> from robust_diffusion.models import GPRGNN
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> GPRGNN(5, 8, out_channels=3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        *,
        out_channels: Count,
        num_iterations: Steps = 10,
        teleport: Share = 0.1,
        num_layers: Layers = 3,
        layer_norm: bool = True,
        dropout: Probability = 0.5,
    ) -> None:
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        super().__init__(widths, layer_norm=layer_norm, dropout=dropout)
        self.num_iterations = num_iterations
        decay = (1 - teleport) ** torch.arange(num_iterations + 1, dtype=torch.float32)
        decay[:-1] *= teleport
        self.weights = nn.Parameter(decay)

    def propagated(
        self, local: Float[Tensor, "n c"], graph: Graph, degree: Float[Tensor, " n"]
    ) -> Float[Tensor, "n c"]:
        """Sum the steps of the walk, each with its learned weight."""
        weights, z = symmetric_weights(graph, degree), local
        out = self.weights[0] * z
        for weight in self.weights[1 : self.num_iterations + 1]:
            z = spmm(weights, z, graph)
            out = out + weight * z
        return out

    def steps(self) -> PropagationSteps:
        """Return the learned weights."""
        return PropagationSteps(self.weights.detach()[: self.num_iterations + 1])


_SMALLEST = 0.01
"""Smallest distance of two nodes; shorter distances count as this."""


@validated("model")
class RUNG(SwitchableGradient, PropagatingMLP):
    """MLP, then robust aggregation of its predictions by a minimax concave penalty.

    Z <- (s (W A) Z + (1 - s) H) / (s q + 1 - s), where A is the normalised adjacency and H the
    predictions of the MLP. The weights are W_uv = max(0, 1 / (2 y_uv) - 1 / (2 gamma)), with y_uv
    the distance of the predictions, each divided by the root of its node's degree, and q_u is the
    mean of W over the edges of u. An edge longer than gamma has no weight and causes no bias.

    Reference: Hou et al. 2024, arXiv:2311.14934.

    Deviation: The authors' code uses the root of the distance as y.

    Args:
        in_channels: Number of input features; see `GCN` for this and all arguments not listed.
        num_layers: Number of layers of the MLP.
        num_iterations: Steps of the aggregation, at least 0.
        gamma: Distance from which an edge has no weight, positive.
        smoothing: Share s of the neighbours, in [0, 1).
        gradient: `detached` holds W fixed in the backward pass, as the authors do; `exact`
            differentiates it, as the adaptive form does.

    Examples:
        >>> import torch
        >>> from robust_diffusion.models import RUNG
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> RUNG(5, 8, out_channels=3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    adaptive_gradient = "exact"

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width],
        *,
        out_channels: Count,
        num_iterations: Steps = 10,
        gamma: Positive = 6.0,
        smoothing: Probability = 0.9,
        gradient: Literal["exact", "detached"] = "detached",
        num_layers: Layers = 3,
        layer_norm: bool = True,
        dropout: Probability = 0.5,
    ) -> None:
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        super().__init__(widths, layer_norm=layer_norm, dropout=dropout)
        self.num_iterations = num_iterations
        self.gamma = gamma
        self.smoothing = smoothing
        self.gradient: Gradient = gradient

    def propagated(
        self, local: Float[Tensor, "n c"], graph: Graph, degree: Float[Tensor, " n"]
    ) -> Float[Tensor, "n c"]:
        """Run the steps of the aggregation."""
        weights, s, z = symmetric_weights(graph, degree), self.smoothing, local
        for _ in range(self.num_iterations):
            trust = self._trust(z * degree.clamp_min(1e-38).rsqrt()[:, None], graph)
            mean = row_sum(trust * graph.full_weight, graph) / degree.clamp_min(1e-38)
            aggregated = s * spmm(trust * weights, z, graph) + (1 - s) * local
            z = aggregated / (s * mean + 1 - s)[:, None]
        return z

    def _trust(self, z: Float[Tensor, "n c"], graph: Graph) -> Float[Tensor, " e"]:
        z = z if self.gradient == "exact" else z.detach()
        squared = (gather_dst(z, graph) - gather_src(z, graph)).square().sum(1)
        distance = squared.clamp_min(_SMALLEST**2).sqrt()
        trust = (0.5 / distance - 0.5 / self.gamma).clamp_min(0)
        return torch.where(graph.src == graph.dst, 0, trust)
