"""Small graphs and flows that many tests share."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import jaxtyping
import torch
from torch import Tensor, nn

from robust_diffusion import flows
from robust_diffusion.flows.base import AttentionFlow
from robust_diffusion.operators import Graph, spmm

MODULATED_FLOWS = [flows.MeanCurvature, flows.Beltrami, flows.PLaplacian]
ATTENTION_FLOWS = [flows.Grand, flows.Learned, flows.UniformModulation, *MODULATED_FLOWS]
SUCCESSORS = [flows.ACMP, flows.GREAD, flows.Blend, flows.GrandPP, flows.GraphCON]
SUCCESSORS += [flows.Hang, flows.HangQuad]
ALL_FLOWS = [flows.Heat, flows.HeatPlus, *ATTENTION_FLOWS, *SUCCESSORS]

NODES = 7
CHANNELS = 5
CLUSTERS = (6, 4, 3)


def both_ways(pairs: Iterable[tuple[int, int]]) -> Tensor:
    half = torch.tensor(sorted(pairs), dtype=torch.long).reshape(-1, 2).T
    return torch.cat([half, half.flip(0)], 1)


def random_edges(seed: int = 0, *, symmetric: bool = False) -> tuple[Tensor, Tensor]:
    """Edges without duplicates or self-loops, unsorted, and positive weights for them."""
    generator = torch.Generator().manual_seed(seed)
    adjacent = torch.rand(NODES, NODES, generator=generator) < 0.4
    weights = torch.rand(NODES, NODES, generator=generator, dtype=torch.float64) + 0.5
    if symmetric:
        adjacent = adjacent | adjacent.T
        weights = weights + weights.T
    edge_index = adjacent.fill_diagonal_(0).nonzero().T
    edge_index = edge_index[:, torch.randperm(edge_index.size(1), generator=generator)]
    return edge_index, weights[edge_index[0], edge_index[1]]


def random_graph(
    seed: int = 0, *, symmetric: bool = False, self_loops: bool = True, weighted: bool = True
) -> Graph:
    """A random weighted graph in float64, without isolated nodes unless `self_loops` is off."""
    edge_index, weight = random_edges(seed, symmetric=symmetric)
    if not weighted:
        weight = torch.ones_like(weight)
    return Graph.from_edge_index(edge_index, weight, num_nodes=NODES, self_loops=self_loops)


def clustered_edges() -> Tensor:
    """Three cliques with a bridge between each two, unsorted: a gap after 3 singular values."""
    ends = torch.tensor(CLUSTERS).cumsum(0)
    member = torch.bucketize(torch.arange(int(ends[-1])), ends, right=True)
    adjacent = member[:, None] == member[None, :]
    for u, v in ((0, 6), (7, 10), (2, 11)):
        adjacent[u, v] = adjacent[v, u] = True
    edge_index = adjacent.fill_diagonal_(0).nonzero().T
    generator = torch.Generator().manual_seed(0)
    return edge_index[:, torch.randperm(edge_index.size(1), generator=generator)]


def with_weight(graph: Graph, weight: Tensor) -> Graph:
    return replace(graph, weight=weight)


def random_signal(seed: int = 0, channels: int = CHANNELS, nodes: int = NODES) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(nodes, channels, generator=generator, dtype=torch.float64)


class SourceFlow(flows.Flow):
    """Diffusion with sources of Z(0): (A - I) Z + rate (Z(0) - Z) + W tanh(W Z(0)), as GRAND++."""

    def __init__(self, channels: int, *, t_end: float = 1.0) -> None:
        super().__init__(channels, t_end=t_end)
        self.rate = nn.Parameter(torch.tensor(0.7))
        self.linear = nn.Linear(channels, channels)

    def edge_weights(self, z: Tensor, graph: Graph) -> Tensor:
        return flows.Heat.edge_weights(self, z, graph)  # type: ignore[arg-type]

    def prepare(self, z: Tensor, graph: Graph) -> Graph:
        return graph.carrying(initial=z, encoded=self.linear(z).tanh())

    def forward(self, t: Tensor, z: Tensor, graph: Graph) -> Tensor:
        source = self.rate * (graph.carried["initial"] - z) + self.linear(graph.carried["encoded"])
        return spmm(self.edge_weights(z, graph), z, graph) - z + source


def build_flow(cls: type[flows.Flow], **options: object) -> flows.Flow:
    """A small flow in float64 and eval mode, the same one for the same options."""
    torch.manual_seed(0)
    if issubclass(cls, AttentionFlow):
        options = {"heads": 2, "attention_channels": 6, **options}
    return cls(CHANNELS, **options).double().eval()


def random_state(flow: flows.Flow, seed: int = 0) -> Tensor:
    """A state of a flow in float64, of the width that it has."""
    width = flow.initial_state(random_signal(), random_graph()).size(1)
    return random_signal(seed, width)


@contextmanager
def without_type_checks() -> Iterator[None]:
    """Let wrongly typed values through to the package's own checks, as outside of pytest."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)  # noqa: FBT003
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)
