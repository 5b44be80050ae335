"""Base of all flows, and bases of the paper's flows, with attention and modulation."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Gt
from jaxtyping import Float
from torch import Tensor, nn

from robust_diffusion.checks import Count, NonNegative, Positive, Width, check_value, validated
from robust_diffusion.errors import ConfigError
from robust_diffusion.flows.attention import AttentionKind, ResampledAttention, TrainedAttention
from robust_diffusion.operators import (
    EdgeValues,
    GradientNorm,
    Graph,
    Modulation,
    NodeSignal,
    edge_modulation,
    gather_dst,
    gather_src,
    gradient_norm,
    kernels_for,
    modulated_diffusion,
    row_sum,
    spmm,
)

Time = Float[Tensor, ""]
State = Float[Tensor, "n s"]
"""State that a solver integrates: the features, or more; see `Flow`."""
ReadFeatures = Callable[[State], NodeSignal]
"""Extract the features from a state."""


@validated("flow")
class Flow(nn.Module, ABC):
    """A right-hand side dZ/dt = f(t, Z, graph) on node features Z of fixed width.

    The state may be wider than the features, such as positions and momenta: `initial_state` builds
    it from the features and the graph, and `features` extracts the output of the layer. Edge
    weights are computed from the features.

    To add a flow, write one such class in `flows/<name>.py` and one `conf/flow/<name>.yaml`.

    A flow that depends on Z(0), such as one with a source, stores it in the graph, here with a
    learned rate:

        def prepare(self, z, graph):
            return graph.carrying(initial=z)

        def forward(self, t, z, graph):
            source = graph.carried["initial"] - z
            return spmm(self.edge_weights(z, graph), z, graph) - z + self.rate * source

    Parameters are `nn.Parameter` attributes, constants are buffers. Any other tensor attribute
    raises an error: the next solve would still see it, and the adjoint would lose its gradient.

    Args:
        channels: Width d of the node features.
        t_end: End of the integration period [0, t_end], at least 0, in units of diffusion time.

    Raises:
        ConfigError: An argument of any flow is unknown or out of range.

    Examples:
        >>> from robust_diffusion import Flow
        >>> from robust_diffusion.flows import Beltrami
        >>> flow = Beltrami(16, t_end=2.0)
        >>> isinstance(flow, Flow), flow.t_end
        (True, 2.0)
    """

    order: Any = 1.0
    """Order of the time derivative, in (0, 1]; below 1 it is Caputo's derivative, with a memory.

    A tuple of orders is mixed with `order_weights`.
    """

    @classmethod
    def unread_of_solver(cls, options: Mapping[str, Any]) -> frozenset[str]:
        """Return the options of a solver that the flow does not read, given its own options.

        A derivative with a memory is solved by a predictor of its own, in the solver's steps.
        """
        has_memory = options.get("order", cls.order) != 1
        return frozenset({"method"} if has_memory else ())

    def __init__(self, channels: Width, *, t_end: NonNegative = 1.0) -> None:
        super().__init__()
        self.channels = channels
        self.t_end = t_end

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, except tensors that are neither parameters nor buffers.

        Raises:
            ConfigError: The value is such a tensor.
        """
        is_plain_tensor = isinstance(value, Tensor) and not isinstance(value, nn.Parameter)
        if is_plain_tensor and name not in self._buffers:
            raise ConfigError(
                f"{type(self).__name__}.{name}: a flow keeps no tensor between calls; return "
                f"graph.carrying({name}=...) from prepare, or use register_buffer"
            )
        super().__setattr__(name, value)

    @abstractmethod
    def edge_weights(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Compute the weight with which each edge carries `z`; negative if a flow repels."""

    @abstractmethod
    def forward(self, t: Time, z: NodeSignal, graph: Graph) -> NodeSignal:
        """Compute the time derivative at time `t` and state `z`."""

    def initial_state(self, z: NodeSignal, graph: Graph) -> State:
        """Build the state at time 0 from the features `z`, by default `z`, after `prepare`."""
        return z

    def features(self, state: State) -> NodeSignal:
        """Extract the features from a state: its first `channels` columns."""
        return state if state.size(1) == self.channels else state[:, : self.channels]

    def narrowed(self, z: NodeSignal, graph: Graph) -> tuple[State, Graph, ReadFeatures]:
        """Return a narrower initial state, its graph, and a function from its end to the features.

        The state must be an affine function of the narrower one, so that equal Runge-Kutta steps
        of both give the same features. By default, the state itself is integrated. A subclass of a
        flow with a narrower state that changes the equation sets `narrowed = Flow.narrowed`.
        """
        return self.initial_state(z, graph), graph, self.features

    def similarity(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Score edges for training-time rewiring, by default by their weights, after `prepare`."""
        return self.edge_weights(z, graph)

    def prepare(self, z: NodeSignal, graph: Graph) -> Graph:
        """Return the graph for a solve from the initial features `z`; by default unchanged.

        Called once per solve. Put values that depend on `z`, on the edge weights or on parameters
        into the graph's weights or into `graph.carrying(name=tensor)`.
        """
        return graph

    def resample(self) -> None:
        """Redraw the random values of a solve; only called in training.

        By default, this calls `resample` of all modules that have it.
        """
        for module in self.children():
            if callable(resample := getattr(module, "resample", None)):
                resample()


def is_number(value: Any, number: float) -> bool:
    """Return whether a value equals a number and is not a tensor, which may be learned."""
    return not isinstance(value, Tensor) and value == number


def refuse_ignored(
    flow: Flow, owner: type[Flow], methods: Sequence[str], remedy: str, others: Sequence[str] = ()
) -> None:
    """Raise a `ConfigError` if a fast path would ignore `others` or overridden methods of `owner`.

    A flow whose class has the line `remedy` does not take the fast path.
    """
    cls = type(flow)
    changed = [name for name in methods if getattr(cls, name) is not getattr(owner, name)]
    if ignored := ", ".join([*changed, *others]):
        raise ConfigError(
            f"{cls.__name__}: the fast path of {owner.__name__} would ignore its {ignored}; add "
            f"`{remedy}` to the class"
        )


@validated("flow")
class AttentionFlow(Flow):
    """A flow whose edges are weighted by dot-product attention A(Z).

    Args:
        channels: Width d of the node features; see `Flow` for all arguments not listed.
        heads: Number of attention heads, averaged.
        attention_channels: Width of all heads together; a multiple of `heads`.
        lipschitz: Divide W_K and W_Q by their largest singular value (the paper's Lipschitz
            constraint).
        attention: `trained` (the equations), or `resampled` (the authors' public code).
    """

    def __init__(
        self,
        channels: Width,
        *,
        heads: Count = 4,
        attention_channels: Width = 64,
        lipschitz: bool = True,
        attention: AttentionKind = "trained",
        t_end: NonNegative = 1.0,
    ) -> None:
        super().__init__(channels, t_end=t_end)
        if attention_channels % heads:
            raise ConfigError(
                f"flow.attention_channels={attention_channels}: must be a multiple of "
                f"flow.heads={heads}"
            )
        build = TrainedAttention if attention == "trained" else ResampledAttention
        self.attention = build(channels, heads, attention_channels, lipschitz=lipschitz)

    def edge_weights(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Return the attention A(Z); flows with other edge weights override this."""
        return self.attention(z, graph)  # type: ignore[no-any-return]

    def similarity(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Return the attention A(Z), without any modulation."""
        return self.attention(z, graph)  # type: ignore[no-any-return]


@validated("flow")
class ModulatedFlow(AttentionFlow):
    """dZ/dt = (A(Z) * B(Z) - Psi(Z)) Z, Psi the diagonal of the row sums of A * B.

    B is the softmax of `scores` over the edges arriving at a node. An edge weight of at most 1
    counts once in A * B; see `operators.edge_modulation`. The equation always runs as written, so
    every method may be overridden; `PowerModulated` trades that for speed.

    Args:
        channels: Width d of the node features; see `AttentionFlow` for all arguments not listed.
        gradient_norm: `edges` (the text) or `residual` (the authors' code).
        gradient_floor: Positive bound that keeps 1 / g_u finite; see `operators.gradient_norm`.
        gradient_ceiling: Upper bound of that norm, above the floor; `None` for none.
    """

    def __init__(
        self,
        channels: Width,
        *,
        gradient_norm: GradientNorm = "edges",
        gradient_floor: Positive = 0.01,
        gradient_ceiling: Positive | None = None,
        heads: Count = 4,
        attention_channels: Width = 64,
        lipschitz: bool = True,
        attention: AttentionKind = "trained",
        t_end: NonNegative = 1.0,
    ) -> None:
        super().__init__(
            channels,
            heads=heads,
            attention_channels=attention_channels,
            lipschitz=lipschitz,
            attention=attention,
            t_end=t_end,
        )
        self.gradient_norm = gradient_norm
        self.gradient_floor = gradient_floor
        if gradient_ceiling is not None:
            check_value(
                "flow.gradient_ceiling", gradient_ceiling, Annotated[float, Gt(gradient_floor)]
            )
        self.gradient_ceiling = gradient_ceiling

    @abstractmethod
    def scores(self, z: NodeSignal, attention: EdgeValues, graph: Graph) -> EdgeValues:
        """Return scores whose softmax is B, up to terms equal for all edges arriving at a node."""

    def norm(self, z: NodeSignal, attention: EdgeValues, graph: Graph) -> Float[Tensor, " n"]:
        """Compute the gradient norm g_u of the state, within its bounds."""
        return gradient_norm(
            z,
            attention,
            graph,
            kind=self.gradient_norm,
            floor=self.gradient_floor,
            ceiling=self.gradient_ceiling,
        )

    def edge_modulation(self, z: NodeSignal, attention: EdgeValues, graph: Graph) -> EdgeValues:
        """Compute B under this attention; see `operators.edge_modulation`."""
        return edge_modulation(self.scores(z, attention, graph), graph)

    def edge_weights(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Return A * B, attention times edge modulation."""
        attention = self.attention(z, graph)
        return attention * self.edge_modulation(z, attention, graph)  # type: ignore[no-any-return]

    def forward(self, t: Time, z: NodeSignal, graph: Graph) -> NodeSignal:
        """Diffuse along A * B, which preserves a constant signal exactly."""
        carried = self.edge_weights(z, graph)
        return spmm(carried, z, graph) - row_sum(carried, graph)[:, None] * z


class PowerModulated(ModulatedFlow):
    """A modulated flow with the scores g_u^a g_v^b, fused into one function.

    The function reads `exponents`, the bounds of the gradient norm and the matrices of the
    attention, and calls no other method. A subclass that overrides one, sets another attention, or
    learns one of the numbers raises a `ConfigError`: derive it from `ModulatedFlow`, or set
    `forward = ModulatedFlow.forward` in it. For the arguments see `ModulatedFlow`.
    """

    exponents: tuple[float, float]
    """Exponents (a, b) of the gradient norm at the destination u and the source v."""

    def scores(self, z: NodeSignal, attention: EdgeValues, graph: Graph) -> EdgeValues:
        """Return g_u^a g_v^b."""
        left, right = self.exponents
        inverse_norm = self.norm(z, attention, graph).reciprocal()
        scores = gather_src(inverse_norm.pow(-right), graph)
        return scores if is_number(left, 0) else gather_dst(inverse_norm.pow(-left), graph) * scores

    def forward(self, t: Time, z: NodeSignal, graph: Graph) -> NodeSignal:
        """Diffuse along A * B, fused if the backend has kernels."""
        return self.fused(t, z, graph, PowerModulated)

    def fused(self, t: Time, z: NodeSignal, graph: Graph, owner: type[ModulatedFlow]) -> NodeSignal:
        """Diffuse along A * B, which `exponents` describe as the methods of `owner` do."""
        numbers = *self.exponents, self.gradient_floor, self.gradient_ceiling
        learned = any(isinstance(number, Tensor) for number in numbers)
        custom = type(self.attention) not in (TrainedAttention, ResampledAttention)
        others = ["attention"] * custom + ["learned numbers"] * learned
        methods = "scores", "norm", "edge_modulation", "edge_weights"
        refuse_ignored(self, owner, methods, "forward = ModulatedFlow.forward", others)
        kernels = kernels_for(z, graph.full_weight, heads=self.attention.heads)
        if kernels is None:
            return super().forward(t, z, graph)
        ceiling = math.inf if self.gradient_ceiling is None else self.gradient_ceiling
        residual = self.gradient_norm == "residual"
        modulation = Modulation(*self.exponents, residual, self.gradient_floor, ceiling)
        return modulated_diffusion(z, self.attention.weights(), graph, modulation, kernels)


@dataclass
class EvaluationCount:
    """Number of right-hand-side evaluations since `count_evaluations` was entered."""

    total: int = 0


@contextmanager
def count_evaluations(model: nn.Module) -> Iterator[EvaluationCount]:
    """Count how often the flows inside `model` are evaluated (NFE) within the context."""
    count = EvaluationCount()

    def add_one(*_: object) -> None:
        count.total += 1

    with ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, Flow):
                hooks.enter_context(module.register_forward_hook(add_one))
        yield count
