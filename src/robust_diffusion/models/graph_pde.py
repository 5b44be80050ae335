"""The paper's models: stacks of layers that each solve a graph neural PDE, guarded or not."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from robust_diffusion.checks import (
    Count,
    Layers,
    Probability,
    Width,
    check_choice,
    imported,
    validated,
)
from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import FLOWS, Flow
from robust_diffusion.integrators.solver import Method, Solver
from robust_diffusion.models.guard import Gradient, Guard, Threshold
from robust_diffusion.models.rewiring import Rewiring
from robust_diffusion.models.stack import HiddenStep, check_hidden_layers, layer_widths, run_layer
from robust_diffusion.operators import AnyFeatures, Graph


@validated("model")
class GraphPDE(nn.Module):
    """Stacked graph neural PDEs: LayerNorm, Linear, diffusion on [0, t_end], ReLU, dropout.

    The last layer has neither ReLU nor dropout; its width is the number of classes and its state
    after diffusion is the logits.

    Reference: fig. (gode_layer) and "Implementation Details", arXiv:2209.07754.

    Args:
        in_channels: Number of input features.
        hidden_channels: Width of every hidden layer, or one width each; 64 in the paper's tables.
        out_channels: Number of classes; passed by name.
        flow: Function that builds a flow from its width, called for every layer; or a name in
            `flows.FLOWS`, for the default options.
        solver: Solver that integrates the flows, or the name of a method; `None` for two steps
            of `implicit_adams`, as in the paper.
        num_layers: Number of layers.
        layer_norm: Normalise the features at the entry of each layer.
        dropout: Probability of dropping a feature at the end of each hidden layer, in [0, 1).
        rewiring: Random change of the edges in training, drawn for every layer and pass; `None`
            for none, as in the paper's text.
        guard: Guard that prunes and re-weights the edges before each layer; `None` for none. With
            the Beltrami flow, this is the paper's BeltramiGuard.

    Raises:
        ConfigError: The flow is unknown, or a value is out of range.

    Examples:
        >>> import torch
        >>> from robust_diffusion import GraphPDE, Solver
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> solver = Solver("rk4", num_steps=4)
        >>> model = GraphPDE(5, out_channels=3, flow="heat", solver=solver)
        >>> model(x, edge_index).shape
        torch.Size([4, 3])
    """

    normalizes_by_degree = False
    takes_features = True

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width] = 64,
        *,
        out_channels: Count,
        flow: Callable[[int], Flow] | str = "beltrami",
        solver: Solver | Method | None = None,
        num_layers: Layers = 3,
        layer_norm: bool = True,
        dropout: Probability = 0.5,
        rewiring: Rewiring | None = None,
        guard: Guard | None = None,
    ) -> None:
        super().__init__()
        widths = layer_widths(in_channels, hidden_channels, out_channels, num_layers)
        build = FLOWS[check_choice("flow", flow, FLOWS)] if isinstance(flow, str) else flow
        if isinstance(flow, Flow):
            kind = type(flow).__name__
            raise ConfigError(
                f"model.flow={kind}: is built already, and every layer needs one of its own width; "
                f"use flow={kind}, or flow=lambda width: {kind}(width, ...)"
            )
        if not isinstance(solver, Solver):
            solver = Solver(solver) if solver else Solver("implicit_adams", num_steps=2)
        self.layers = nn.ModuleList(
            PDELayer(
                before,
                after,
                flow=build(after),
                solver=solver,
                layer_norm=layer_norm,
                rewiring=rewiring,
                guard=guard,
            )
            for before, after in pairwise(widths)
        )
        self.dropout = nn.Dropout(dropout)

    @classmethod
    def unread(cls, options: Mapping[str, Any]) -> frozenset[str]:
        """Return the keys of `options` that the flow leaves unread."""
        flow = imported(options["flow"]["_target_"], "flow.")
        unread = getattr(flow, "unread_of_solver", lambda _: ())(options["flow"])
        return frozenset(f"solver.{key}" for key in unread)

    def extra_repr(self) -> str:
        """Return the flow, its solver and the number of layers, for `print(model)`."""
        layer = self.layers[0]
        assert isinstance(layer, PDELayer)
        return f"{layer.extra_repr()}, num_layers={len(self.layers)}"

    def forward(
        self,
        x: AnyFeatures,
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Return class logits of every node."""
        graph = Graph.from_edge_index(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
        for layer in self.layers[:-1]:
            z, graph = layer(x, graph)
            x = self.dropout(torch.relu(z))
        z, _ = self.layers[-1](x, graph)
        return z  # type: ignore[no-any-return]

    def hidden_step(self, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]) -> HiddenStep:
        """Return the diffusion of the second layer, after its norm and Linear."""
        check_hidden_layers(len(self.layers))
        graph = Graph.from_edge_index(edge_index, num_nodes=x.size(0), dtype=x.dtype)
        x, graph = self.layers[0](x, graph)
        layer = self.layers[1]
        assert isinstance(layer, PDELayer)
        z, graph, _ = layer.enter(self.dropout(torch.relu(x)), graph)
        return HiddenStep("diffusion", z.size(1), lambda: layer.diffuse(z, graph))


class PDELayer(nn.Module):
    """LayerNorm, Linear, then diffusion of the result over the graph on [0, t_end].

    For the arguments see `GraphPDE`; `out_channels` is the width of the diffused state.
    """

    def __init__(
        self,
        in_channels: Count,
        out_channels: Count,
        *,
        flow: Flow,
        solver: Solver,
        layer_norm: bool,
        rewiring: Rewiring | None,
        guard: Guard | None,
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(in_channels) if layer_norm else nn.Identity()
        self.linear = nn.Linear(in_channels, out_channels)
        nn.init.xavier_normal_(self.linear.weight, gain=nn.init.calculate_gain("relu"))
        self.flow = flow
        self.solver = solver.on(flow.t_end)
        self.rewiring = rewiring
        self.guard = guard

    def extra_repr(self) -> str:
        """Return the flow and its solver, for `print(model)`."""
        solver = self.solver
        setting = "" if solver.num_steps is None else f", num_steps={solver.num_steps}"
        flow = f"flow={type(self.flow).__name__}, t_end={self.flow.t_end:g}"
        return f"{flow}, solver={solver.method}{setting}"

    def make_adaptive(self) -> bool:
        """Differentiate straight through the guard and through the solver's steps."""
        guard, solver = self.guard, self.solver
        if guard is not None:
            self.guard = guard.adaptive()
        if solver.adjoint:
            self.solver = replace(solver, adjoint=False)
        return self.guard != guard or self.solver is not solver

    def forward(self, x: AnyFeatures, graph: Graph) -> tuple[Float[Tensor, "n d"], Graph]:
        """Return the diffused features, and the edges that the guard keeps for the next layer."""
        z, graph, next_graph = self.enter(x, graph)
        return self.diffuse(z, graph), next_graph

    def enter(self, x: AnyFeatures, graph: Graph) -> tuple[Float[Tensor, "n d"], Graph, Graph]:
        """Return initial features, the edges to diffuse them over, and those for the next layer."""
        x = run_layer(self.norm, x)
        next_graph = graph
        if self.guard is not None:
            next_graph, graph = self.guard(x, graph)
        z = run_layer(self.linear, x)
        if self.training:
            self.flow.resample()
            if self.rewiring is not None:
                at = z.detach()
                graph = self.rewiring(
                    graph, lambda g: self.flow.similarity(at, self.flow.prepare(at, g))
                )
        return z, graph, next_graph

    def diffuse(self, z: Float[Tensor, "n d"], graph: Graph) -> Float[Tensor, "n d"]:
        """Integrate `z` to the end of the integration period."""
        return self.solver.solve(self.flow, z, graph)


@validated("model")
class BeltramiGuard(GraphPDE):
    """Stacked Beltrami flows, with GNNGuard's re-weighting before each of them.

    It replaces GNNGuard's graph convolutions by layers that solve the Beltrami flow. The edge
    weights enter the softmaxes of its attention and of its modulation.

    Reference: table (BelGuard) and section "BeltramiGuard", arXiv:2209.07754.

    Args:
        in_channels: Number of input features. For `threshold`, `reweight` and `gradient` see
            `Guard`; for all other arguments see `GraphPDE`.

    Examples:
        >>> import torch
        >>> from robust_diffusion.models import BeltramiGuard
        >>> x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 0]])
        >>> BeltramiGuard(5, 8, out_channels=3)(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: Count,
        hidden_channels: Width | Sequence[Width] = 64,
        *,
        out_channels: Count,
        threshold: Threshold = 0.1,
        reweight: bool = True,
        gradient: Gradient = "exact",
        flow: Callable[[int], Flow] | str = "beltrami",
        solver: Solver | Method | None = None,
        num_layers: Layers = 3,
        layer_norm: bool = True,
        dropout: Probability = 0.5,
        rewiring: Rewiring | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            hidden_channels,
            out_channels=out_channels,
            flow=flow,
            solver=solver,
            num_layers=num_layers,
            layer_norm=layer_norm,
            dropout=dropout,
            rewiring=rewiring,
            guard=Guard(threshold=threshold, reweight=reweight, gradient=gradient),
        )
