"""What an attacker may spend."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from robust_diffusion.checks import check_whole
from robust_diffusion.errors import ConfigError


@dataclass(frozen=True)
class InjectionBudget:
    """Limits of an injection attack, in normalised feature units.

    Args:
        max_injected_nodes: Most nodes that may be injected, at least 0.
        max_edges_per_injected_node: Most undirected edges of one injected node, at least 0. The
            paper prints "50 edges" in all; its attacks, GRB's, count per injected node.
        feature_limits: Smallest and largest feature value of an injected node; `None` until
            `resolve` takes those of a clean graph.

    Raises:
        ConfigError: A limit below 0, not whole, or an empty feature range.
    """

    max_injected_nodes: int
    max_edges_per_injected_node: int
    feature_limits: Sequence[float] | None

    def __post_init__(self) -> None:
        """Check the limits."""
        for key in ("max_injected_nodes", "max_edges_per_injected_node"):
            check_whole(f"budget.{key}", getattr(self, key), at_least=0)
        limits = self.feature_limits
        if limits is None:
            return
        numbers = isinstance(limits, Sequence) and all(isinstance(x, int | float) for x in limits)
        if not numbers or len(limits) != 2 or not -math.inf < limits[0] < limits[1] < math.inf:
            raise ConfigError(
                f"budget.feature_limits={limits}: must be two numbers, the smaller first"
            )
        object.__setattr__(self, "feature_limits", (float(limits[0]), float(limits[1])))

    @property
    def limits(self) -> tuple[float, float]:
        """Smallest and largest feature value of an injected node.

        Raises:
            ConfigError: They are left to a clean graph, and none was given to `resolve`.
        """
        if self.feature_limits is None:
            raise ConfigError("budget.feature_limits=null: give two numbers, the smaller first")
        low, high = self.feature_limits
        return low, high

    def resolve(self, x: Float[Tensor, "n f"]) -> "InjectionBudget":
        """The same budget; feature limits that are `None` become the range of `x`.

        Args:
            x: Features of the clean graph, normalised.
        """
        if self.feature_limits is not None:
            return self
        return replace(self, feature_limits=(x.min().item(), x.max().item()))

    def check_targets(self, num_targets: int) -> None:
        """Refuse a budget that the target nodes cannot take.

        Args:
            num_targets: Number of nodes under attack.

        Raises:
            ConfigError: No target, or more edges per injected node than targets.
        """
        if num_targets == 0:
            raise ConfigError("target nodes: none; an attack needs at least one")
        if self.max_edges_per_injected_node > num_targets:
            raise ConfigError(
                f"budget.max_edges_per_injected_node={self.max_edges_per_injected_node}: an "
                f"injected node can have at most one edge to each of the {num_targets} target nodes"
            )
