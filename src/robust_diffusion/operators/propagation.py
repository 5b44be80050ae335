"""Propagation of predictions over a graph with injected nodes, many times per second.

Models such as APPNP are a network per node followed by a propagation. If only injected nodes and
their edges change, the network of all other nodes runs once, and the propagation is a sum that C++
computes in a fraction of a millisecond: a tenth of a forward pass.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from robust_diffusion.operators.graph import Graph, graph_with_degree
from robust_diffusion.operators.kernels.base import PropagationSteps
from robust_diffusion.operators.kernels.compiled import CompiledKernels, Injected
from robust_diffusion.operators.kernels.selection import kernels_for

MOST_CLASSES = 16
"""Most classes for which there are kernels."""


@dataclass(frozen=True, eq=False)
class Propagator:
    """A propagation over a clean graph, to which injected nodes are added in each call.

    All edges have weight 1 and are undirected.
    """

    kernels: CompiledKernels
    graph: Graph  # clean, with self-loops
    degree: Float[Tensor, " n"]  # of the clean nodes
    local: Float[Tensor, "n w"]  # predictions of the clean nodes, padded with 0
    classes: int  # width of the predictions without padding
    targets: Int[Tensor, " t"]  # nodes to which edges may lead
    steps: PropagationSteps
    network: Callable[[Tensor], Tensor]  # predictions of any nodes from their features

    def predictions(self, x: Float[Tensor, "m f"]) -> Float[Tensor, "m c"]:
        """Return the predictions of nodes, without a gradient."""
        with torch.no_grad():
            return self.network(x)

    def __call__(
        self,
        local: Float[Tensor, "k c"],
        chosen: Bool[Tensor, "k t"],
        links: Int[Tensor, "2 l"],
    ) -> Float[Tensor, "t c"]:
        """Return the targets' logits.

        Args:
            local: Predictions of the injected nodes.
            chosen: True where an injected node has an edge to a target.
            links: Edges among injected nodes, numbered from 0, each once.
        """
        k, t = chosen.shape
        chosen, links = chosen.contiguous(), links.contiguous()
        pointers = self.targets.data_ptr(), chosen.data_ptr(), links.size(1), links.data_ptr()
        clean, added = (self.graph, self.degree, self.local), Injected(k, t, *pointers)
        rows = self.kernels.propagate(*clean, added, local.contiguous(), self.steps)
        return rows[:, : self.classes]


def propagator(
    network: Callable[[Tensor], Tensor],
    x: Float[Tensor, "n f"],
    edge_index: Int[Tensor, "2 e"],
    targets: Int[Tensor, " t"],
    steps: PropagationSteps,
) -> Propagator | None:
    """Return a propagation over this graph; `None` if C++ does not know it or is missing."""
    graph, degree = graph_with_degree(x, edge_index)
    with torch.no_grad():
        local = network(x)
    kernels, c = kernels_for(local, degree), local.size(1)
    if not (graph.weight is None and c <= MOST_CLASSES and isinstance(kernels, CompiledKernels)):
        return None
    padded = F.pad(local, (0, -c % 8))
    if steps.weights is not None:
        steps = replace(steps, weights=steps.weights.to(local).contiguous())
    at = kernels, graph, degree, padded, c, targets.contiguous()
    return Propagator(*at, steps, network)
