"""GRAND++ flow."""

from robust_diffusion.checks import Count, NonNegative, Positive, Width, validated
from robust_diffusion.flows.attention import AttentionKind
from robust_diffusion.flows.base import AttentionFlow, Time
from robust_diffusion.operators import Graph, NodeSignal, spmm


@validated("flow")
class GrandPP(AttentionFlow):
    r"""GRAND with a source that keeps nodes from becoming equal.

    .. math:: \partial Z / \partial t = (A(Z) - I) Z + s (Z(0) - \bar{Z}(0))

    The source is each node's initial features minus their mean over all nodes, so that it sums to
    zero.

    Reference: Thorpe et al. 2022, OpenReview:EMxu-dzvJk.

    Args:
        channels: Width d of the node features; see `AttentionFlow` for all arguments not listed.
        source: s, the source's strength, positive: 1 in the paper's equation.

    Deviation:
        In the paper, the source acts at the labelled nodes. Models of this package do not receive
        labels, so it acts at all nodes.

    Examples:
        >>> from robust_diffusion import GraphPDE
        >>> from robust_diffusion.flows import GrandPP
        >>> GraphPDE(5, out_channels=3, flow=GrandPP).layers[0].flow.source
        1.0
    """

    def __init__(
        self,
        channels: Width,
        *,
        source: Positive = 1.0,
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
        self.source = source

    def prepare(self, z: NodeSignal, graph: Graph) -> Graph:
        """Store the source in the graph."""
        return graph.carrying(source=self.source * (z - z.mean(0)))

    def forward(self, t: Time, z: NodeSignal, graph: Graph) -> NodeSignal:
        """Pull every node towards the mean of its neighbours, and away from the overall mean."""
        return spmm(self.edge_weights(z, graph), z, graph) - z + graph.carried["source"]
