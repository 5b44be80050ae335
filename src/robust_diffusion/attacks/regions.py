"""Regions of a graph around nodes, packed so that one forward pass tries many changes."""

from collections.abc import Iterable, Sequence, Set
from functools import cache

import torch
from jaxtyping import Int
from torch import Tensor


class Regions:
    """Targets within some hops of a node.

    A change at a node mostly affects the targets near it. If the regions of two changes share no
    target, one forward pass tries both, and each change is credited with the effect in its own
    region. A deep model, or a solver with many steps, also carries a change further. The credit is
    therefore only a proposal: another pass, with this change alone or with all accepted changes,
    has to confirm it.

    Args:
        edge_index: Edges of the graph, both directions.
        targets: Numbers of the target nodes.
        num_nodes: Number of nodes n.

    Examples:
        >>> import torch
        >>> path = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> regions = Regions(path, torch.tensor([0, 3]), num_nodes=4)
        >>> regions.around([1], hops=1), regions.around([1], hops=2)
        (frozenset({0}), frozenset({0, 1}))
    """

    def __init__(
        self, edge_index: Int[Tensor, "2 e"], targets: Int[Tensor, " t"], num_nodes: int
    ) -> None:
        src, dst = edge_index[:, edge_index[0].argsort(stable=True)].cpu()
        counts = torch.bincount(src, minlength=num_nodes).tolist()
        self._neighbours = [row.tolist() for row in dst.split(counts)]
        self._position = {node: i for i, node in enumerate(targets.tolist())}
        self._around = cache(self._search)

    def around(self, nodes: Iterable[int], hops: int) -> frozenset[int]:
        """Return the positions of the targets within `hops` edges of any of the nodes."""
        return frozenset[int]().union(*(self._around(node, hops) for node in nodes))

    def _search(self, node: int, hops: int) -> frozenset[int]:
        seen = front = {node}
        for _ in range(hops):
            front = {other for one in front for other in self._neighbours[one]} - seen
            seen = seen | front
        return frozenset(self._position[node] for node in seen if node in self._position)


def pack(regions: Sequence[Set[int]], most: int | None = None) -> list[list[int]]:
    """Distribute changes over few passes so that regions in one pass are disjoint (first fit).

    Args:
        regions: Region of each change to try, in order of preference.
        most: Most changes in one pass; `None` for no limit.

    Returns:
        Indices into `regions` for each pass.

    Examples:
        >>> pack([{0, 1}, {1, 2}, {2, 3}])
        [[0, 2], [1]]
    """
    passes: list[tuple[list[int], set[int]]] = []
    for i, region in enumerate(regions):
        for members, covered in passes:
            if (most is None or len(members) < most) and covered.isdisjoint(region):
                break
        else:
            members, covered = [], set()
            passes.append((members, covered))
        members.append(i)
        covered |= region
    return [members for members, _ in passes]
