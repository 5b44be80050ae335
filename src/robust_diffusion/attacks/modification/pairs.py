"""Pairs of nodes of which at least one is a target, counted and drawn without n x n memory."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from robust_diffusion.attacks.base import undirected_edge_numbers
from robust_diffusion.attacks.modification.base import membership

MAX_LISTED = 2**20
"""Most pairs that are listed; of more, pairs are drawn until enough fit."""
MAX_ROUNDS = 64
"""Rounds of drawing before fewer pairs are accepted."""


@dataclass(frozen=True, eq=False)
class TargetPairs:
    """The undirected pairs of different nodes of which at least one is a target, numbered.

    With the targets put first, these are the first t rows of an upper triangle.

    Args:
        targets: Nodes under attack, each once.
        num_nodes: Number of nodes n.
    """

    targets: Int[Tensor, " t"]
    num_nodes: int

    @cached_property
    def order(self) -> Int[Tensor, " n"]:
        """All nodes, targets first."""
        others = ~membership(self.targets, self.num_nodes)
        return torch.cat([self.targets, others.nonzero().squeeze(1)])

    @property
    def total(self) -> int:
        """Number of pairs."""
        t = self.targets.numel()
        return t * (2 * self.num_nodes - t - 1) // 2

    def __getitem__(self, numbers: Int[Tensor, " p"]) -> Int[Tensor, "2 p"]:
        """The pairs of these numbers, in 0..total-1."""
        t, n = self.targets.numel(), self.num_nodes
        rows = torch.arange(t, device=numbers.device)
        ends = (rows + 1) * (n - 1) - rows * (rows + 1) // 2
        row = torch.searchsorted(ends, numbers, right=True)
        column = numbers - ends[row] + n
        return self.order[torch.stack([row, column])]

    def draw_absent(
        self,
        count: int,
        edge_index: Int[Tensor, "2 e"],
        generator: torch.Generator,
        fits: Callable[[Tensor], Bool[Tensor, " p"]] | None = None,
    ) -> Int[Tensor, "2 p"]:
        """Draw different pairs that are no edges, uniformly.

        Args:
            count: How many; fewer come back if there are fewer, or hardly any among many.
            edge_index: Edges, both directions.
            generator: CPU generator.
            fits: Which pairs count; all by default.
        """
        n, device = self.num_nodes, self.targets.device
        taken = undirected_edge_numbers(edge_index, n)

        def absent(pairs: Tensor) -> Tensor:
            low, high = pairs.aminmax(dim=0)
            free = ~torch.isin(low * n + high, taken)
            return pairs[:, free if fits is None else free & fits(pairs)]

        if self.total <= MAX_LISTED:
            listed = torch.randperm(self.total, generator=generator).to(device)
            return absent(self[listed])[:, :count]
        numbers = torch.empty(0, dtype=torch.long)
        found = self.targets.new_empty(2, 0)
        for _ in range(MAX_ROUNDS):
            if found.size(1) >= count:
                break
            more = torch.randint(self.total, (2 * count + 1024,), generator=generator)
            numbers = _first_of_each(torch.cat([numbers, more]))
            found = absent(self[numbers.to(device)])
        return found[:, :count]


def _first_of_each(numbers: Int[Tensor, " a"]) -> Int[Tensor, " b"]:
    """The numbers in their order, without repetitions."""
    values, where = numbers.sort(stable=True)
    first = torch.ones_like(values, dtype=torch.bool)
    first[1:] = values[1:] != values[:-1]
    return numbers[where[first].sort().values]
