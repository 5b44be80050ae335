"""Base of all flows, and bases of the paper's flows, with attention and modulation."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
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

    def __init_subclass__(cls, **options: Any) -> None:  # keywords of the class statement
        """Validate the constructor arguments of every flow against their annotations.

        A class that changes the equation but not the inherited `narrowed` is integrated without
        narrowing.
        """
        super().__init_subclass__(**options)
        validated("flow")(cls)
        pieces = {"forward", "initial_state", "features", "edge_weights"}
        if "narrowed" not in vars(_nearest(cls, pieces | {"narrowed"})):
            cls.narrowed = Flow.narrowed  # type: ignore[method-assign]

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
        of both give the same features. By default, the state itself is integrated.
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


def _nearest(cls: type, names: set[str]) -> type:
    """Return the class, in the order of inheritance, that defines one of the names."""
    return next(base for base in cls.__mro__ if vars(base).keys() & names)


class AttentionFlow(Flow):
    """A flow whose edges are weighted by dot-product attention A(Z).

    Args:
        channels: Width d of the node features; see `Flow` for all arguments not listed.
        heads: Number of attention heads, averaged.
        attention_channels: Width of all heads together; a multiple of `heads`.
        spectral_norm: Divide W_K and W_Q by their largest singular value (the paper's Lipschitz
            constraint).
        attention: `trained` (the equations), or `resampled` (the authors' public code).
    """

    def __init__(
        self,
        channels: Width,
        *,
        heads: Count = 4,
        attention_channels: Width = 64,
        spectral_norm: bool = True,
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
        self.attention = build(channels, heads, attention_channels, spectral_norm=spectral_norm)

    def edge_weights(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Return the attention A(Z); flows with other edge weights override this."""
        return self.attention(z, graph)  # type: ignore[no-any-return]

    def similarity(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Return the attention A(Z), without any modulation."""
        return self.attention(z, graph)  # type: ignore[no-any-return]


class ModulatedFlow(AttentionFlow):
    """dZ/dt = (A(Z) * B(Z) - Psi(Z)) Z, Psi the diagonal of the row sums of A * B.

    B is the softmax, over the edges arriving at a node, of a function of the gradient norms at both
    ends; a subclass sets its exponents, or overrides `modulation_scores`. An edge weight of at most
    1 counts once in A * B; see `operators.edge_modulation`.

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
        spectral_norm: bool = True,
        attention: AttentionKind = "trained",
        t_end: NonNegative = 1.0,
    ) -> None:
        super().__init__(
            channels,
            heads=heads,
            attention_channels=attention_channels,
            spectral_norm=spectral_norm,
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

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Disable the fused kernels if a class changes the equation but not the exponents.

        Exponents are inherited, and the fused kernels only use these. Otherwise, a subclass of
        Beltrami, or a mixin before it, that changes the scores would run as written under
        `reference`, but as plain Beltrami under the faster backends. The method resolution order
        shows whether the equation or the exponents were defined last.
        """
        super().__init_subclass__(**kwargs)
        pieces = {"modulation_scores", "norm", "edge_modulation", "edge_weights"}
        exponents = "modulation_exponents"
        cls._is_fused = exponents in vars(_nearest(cls, pieces | {exponents}))

    _is_fused: bool

    @property
    def modulation_exponents(self) -> tuple[float, float] | None:
        """Exponents (a, b) of the scores g_u^a g_v^b; `None` if the scores have another form.

        A flow with exponents runs as one fused function on the faster backends; others run as
        written.
        """
        return None

    def _fused_exponents(self) -> tuple[float, float] | None:
        """Return the exponents, unless the fused kernels would ignore part of the equation.

        The kernels only support the package's attentions, and pass no gradient to learned numbers.
        """
        exponents = self.modulation_exponents if self._is_fused else None
        known = type(self.attention) in (TrainedAttention, ResampledAttention)
        numbers = *(exponents or ()), self.gradient_floor, self.gradient_ceiling
        learned = any(isinstance(number, Tensor) for number in numbers)
        return exponents if known and not learned else None

    def modulation_scores(self, inverse_norm: Float[Tensor, " n"], graph: Graph) -> EdgeValues:
        """Return scores whose softmax is B, up to terms equal for all edges arriving at a node.

        `inverse_norm` is 1 / g_u at each node, positive and bounded by the gradient floor.
        """
        if self.modulation_exponents is None:
            raise NotImplementedError(f"{type(self).__name__}.modulation_scores")
        left, right = self.modulation_exponents
        scores = gather_src(inverse_norm.pow(-right), graph)
        return scores if is_number(left, 0) else gather_dst(inverse_norm.pow(-left), graph) * scores

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
        scores = self.modulation_scores(self.norm(z, attention, graph).reciprocal(), graph)
        return edge_modulation(scores, graph)

    def edge_weights(self, z: NodeSignal, graph: Graph) -> EdgeValues:
        """Return A * B, attention times edge modulation."""
        attention = self.attention(z, graph)
        return attention * self.edge_modulation(z, attention, graph)  # type: ignore[no-any-return]

    def forward(self, t: Time, z: NodeSignal, graph: Graph) -> NodeSignal:
        """Diffuse along A * B, which preserves a constant signal exactly."""
        # The weights are only read if needed, since that advances the power iteration in training.
        exponents = self._fused_exponents()
        if exponents and (kernels := kernels_for(z, graph.weight, heads=self.attention.heads)):
            ceiling = math.inf if self.gradient_ceiling is None else self.gradient_ceiling
            residual = self.gradient_norm == "residual"
            modulation = Modulation(*exponents, residual, self.gradient_floor, ceiling)
            weights = self.attention.weights()
            return modulated_diffusion(z, weights, graph, modulation, kernels)
        carried = self.edge_weights(z, graph)
        return spmm(carried, z, graph) - row_sum(carried, graph)[:, None] * z


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
