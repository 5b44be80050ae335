"""Stability of a trained diffusion over time: growth of perturbations, bounds, smoothness, cost."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from robust_diffusion.errors import ConfigError, TrainingError
from robust_diffusion.flows import Flow, count_evaluations
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models.checked import copy_of
from robust_diffusion.models.graph_pde import PDELayer
from robust_diffusion.operators import Graph

log = logging.getLogger(__name__)

TIMES = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
"""Times at which a state is measured; training only reaches the first few units."""

PUSH = 1e-3
"""Norm of the perturbation of the initial state, relative to that of the state."""

MOST_EVALUATIONS = 50_000
"""Most evaluations between two times; a trajectory that needs more ends there."""

Row = dict[str, float]


@dataclass(frozen=True, eq=False)
class Motion:
    """The diffusion of one layer from its initial state."""

    flow: Flow  # in double precision
    graph: Graph  # as prepared by the flow
    state: Float[Tensor, "n s"]  # at time 0

    def at(self, times: Sequence[float]) -> list[Float[Tensor, "n d"]]:
        """Return features at each time; fewer, with a logged warning, if the solver fails."""
        solver = Solver("dopri5", rtol=1e-4, atol=1e-6, max_nfe=MOST_EVALUATIONS)
        states: list[Tensor] = []
        try:
            with torch.no_grad():
                for state in solver.trajectory(self.flow, self.state, self.graph, times):
                    states.append(state)  # noqa: PERF402 - those before an error count
        except TrainingError as error:
            log.warning("t=%g: the trajectory ends here: %s", times[len(states) - 1], error)
        return [self.flow.features(state) for state in states]


def motion(
    model: nn.Module,
    x: Float[Tensor, "n f"],
    edge_index: Int[Tensor, "2 e"],
    *,
    layer: int = 0,
) -> Motion:
    """Return the diffusion of one layer of a trained stack of graph neural PDEs on a graph."""
    model = copy_of(model).double().eval()
    layers = [module for module in model.modules() if isinstance(module, PDELayer)]
    if not -len(layers) <= layer < len(layers):
        raise ConfigError(f"--layer {layer}: the model has {len(layers)} layers with a flow")
    watched = layers[layer]
    if watched.flow.order != 1:
        raise ConfigError(
            f"flow.order={watched.flow.order}: has a memory, and no state to start from; choose a "
            "flow of first order"
        )
    entered: list[tuple[Tensor, Graph]] = []
    hook = watched.register_forward_pre_hook(lambda _, inputs: entered.append(inputs))
    with torch.no_grad(), hook:
        model(x.double(), edge_index)
        z, graph, _ = watched.enter(*entered[0])
        graph = watched.flow.prepare(z, graph)
        return Motion(watched.flow, graph, watched.flow.initial_state(z, graph))


def follow(
    clean: Motion, attacked: Motion | None = None, *, times: Sequence[float] = TIMES, seed: int = 0
) -> list[Row]:
    """Follow a state and its perturbations, up to times far beyond training.

    Args:
        clean: The layer on the clean graph.
        attacked: The same layer on an attacked graph, whose first nodes are those of the clean
            graph; `None` for none.
        times: Ascending times, starting at 0.
        seed: Seed for the perturbation of the initial state.

    Returns:
        One row per time that all trajectories reached, each relative to time 0:

        - `energy`: Dirichlet energy, the mean of |z_u - z_v|^2 over edges.
        - `norm`: Norm of the features.
        - `overshoot`: Largest distance of any channel from its initial range, in units of that
          range; 0 if the maximum principle holds.
        - `growth`: Distance between the state and one with a slightly perturbed start.
        - `shift`: Distance from the attacked graph's state at the original nodes, relative to the
          norm at time 0; absent without `attacked`.
    """
    generator = torch.Generator().manual_seed(seed)
    push = torch.randn(clean.state.shape, generator=generator, dtype=torch.float64)
    push = push.to(clean.state) * PUSH * clean.state.norm() / push.norm()
    trajectories = [clean.at(times), replace(clean, state=clean.state + push).at(times)]
    if attacked is not None:
        trajectories.append(attacked.at(times))
    z_0 = trajectories[0][0]
    low, high = z_0.min(0).values, z_0.max(0).values
    extent = (high - low).clamp_min(torch.finfo(z_0.dtype).tiny)
    apart = (trajectories[0][0] - trajectories[1][0]).norm()
    rows = []
    for t, (z, beside, *others) in zip(times, zip(*trajectories, strict=False), strict=False):
        beyond = torch.maximum(z - high, low - z).clamp_min(0) / extent
        row = {
            "t": t,
            "energy": _ratio(_energy(z, clean.graph), _energy(z_0, clean.graph)),
            "norm": _ratio(z.norm(), z_0.norm()),
            "overshoot": beyond.max().item(),
            "growth": _ratio((z - beside).norm(), apart),
        }
        for other in others:
            row["shift"] = _ratio((other[: z.size(0)] - z).norm(), z_0.norm())
        rows.append(row)
    return rows


def _energy(z: Tensor, graph: Graph) -> Tensor:
    return (z[graph.src] - z[graph.dst]).square().sum(1).mean()


def _ratio(a: Tensor, b: Tensor) -> float:
    return (a / b).item() if b > 0 else 0.0


def evaluations(
    model: nn.Module, solver: Solver, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]
) -> int:
    """Count evaluations of the flows (NFE) in one forward pass, with all layers using `solver`."""
    model = copy_of(model).eval()
    for module in model.modules():
        if isinstance(module, PDELayer):
            module.solver = solver
    with torch.no_grad(), count_evaluations(model) as count:
        model(x, edge_index)
    return count.total


def thinned(
    num_original: int,
    edge_index: Int[Tensor, "2 e"],
    num_nodes: int,
    *,
    seed: int,
    edges: float = 0.9,
    injected: float = 0.5,
) -> Int[Tensor, "2 e2"]:
    """Draw a random part of a graph's edges, the same for a clean graph and an attacked one."""
    generator = torch.Generator().manual_seed(seed)
    low, high = edge_index.cpu().min(0).values, edge_index.cpu().max(0).values
    keys, place = torch.unique(low * num_nodes + high, return_inverse=True)
    # Edges are identified by their ends, so that both graphs keep the same original edges.
    is_original = torch.zeros(keys.numel(), dtype=torch.bool)
    is_original[place[high < num_original]] = True
    drawn = torch.ones(keys.numel(), dtype=torch.bool)
    drawn[is_original] = torch.rand(int(is_original.sum()), generator=generator) < edges
    stays = torch.rand(num_nodes - num_original, generator=generator) < injected
    stays = torch.cat([torch.ones(num_original, dtype=torch.bool), stays])
    return edge_index[:, (drawn[place] & stays[high]).to(edge_index.device)]
