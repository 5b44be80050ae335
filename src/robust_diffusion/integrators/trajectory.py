"""States of a flow on its way, at any times."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from robust_diffusion.errors import ConfigError
from robust_diffusion.operators import Graph


@runtime_checkable
class FlowLike(Protocol):
    """A flow, as far as a solver knows it; see `flows.Flow`."""

    order: float
    t_end: float

    def prepare(self, z: Tensor, graph: Graph) -> Graph:
        """The graph with what the flow carries along."""

    def initial_state(self, z: Tensor, graph: Graph) -> Tensor:
        """State at time 0."""

    def features(self, state: Tensor) -> Tensor:
        """Features of a state."""

    def narrowed(self, z: Tensor, graph: Graph) -> tuple[Tensor, Graph, Callable[[Tensor], Tensor]]:
        """A narrower state at time 0, its graph, and the way to features."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Parameters with a gradient."""

    def __call__(self, t: Tensor, z: Tensor, graph: Graph) -> Tensor:
        """The derivative."""


def trajectory(
    solver: Any, flow: FlowLike, state: Tensor, graph: Graph, times: Sequence[float]
) -> Iterator[Tensor]:
    """The state at each time, each solved from the one before.

    The steps of a `Solver` are as long as on the flow's period, or shorter; the flow is of first
    order and has prepared the graph; times ascend from 0 on.
    """
    if flow.order != 1 or (solver.adjoint and torch.is_grad_enabled()):
        remedy = "leave them out, or use flow.order=1 and torch.no_grad()"
        raise ConfigError(f"times={list(times)}: not of a memory, nor by the adjoint; {remedy}")
    now, period = 0.0, flow.t_end or 1.0
    steps = solver.steps_on(period)
    for t in times:
        if not now <= t < math.inf:
            raise ConfigError(f"times={list(times)}: must be finite and ascend, from 0 on")
        if t > now:
            if steps is not None:
                share = math.ceil(steps * (t - now) / period * (1 - 1e-12))
                solver = replace(solver, num_steps=share, step_size=None)
            state = solver.integrate(partial(_later, flow, graph, now), state, t - now)
            now = t
        yield state


def _later(flow: FlowLike, graph: Graph, start: float, t: Tensor, z: Tensor) -> Tensor:
    return flow(t + start, z, graph=graph)
