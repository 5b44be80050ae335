"""Budget of an attacker, and the part of it that an attack has spent."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from robust_diffusion.checks import Count, Nodes, Positive, Share, validated
from robust_diffusion.errors import ConfigError

OF_INJECTIONS = frozenset(
    [
        *("max_injected_nodes", "max_edges_per_injected_node", "max_injected_edges"),
        *("features", "max_words"),
    ]
)
"""Limits that only attacks read which inject nodes."""

OF_MODIFICATIONS = frozenset(["edge_ratio", "node_ratio", "epsilon"])
"""Limits that only attacks read which change what is there."""
REFERENCE_RANGE = 1.88
"""Range of GRB's Cora features, -0.94 to 0.94, for which the attacks' step sizes were chosen."""


@validated("budget")
@dataclass(frozen=True)
class Budget:
    """Limits of an attack, in normalised feature units; each kind of attack reads its own.

    A count or ratio that is not set defaults to 0, which allows nothing: `Budget(5, 10)` permits
    injections but no flips, so `evaluate` rejects it for an attack that flips edges.

    Args:
        max_injected_nodes: Most nodes that may be injected, at least 0.
        max_edges_per_injected_node: Most undirected edges of one injected node, at least 0; with
            fewer targets than that, one edge to each target. The paper prints "50 edges" in all;
            its attacks, taken from GRB, count per injected node.
        feature_limits: Smallest and largest feature value that an attack may write; `None` for
            the range of the clean graph, which `resolve` fills in.
        max_injected_edges: Most undirected edges of all injected nodes together, at least 0;
            `None` for no limit beyond that of each node.
        node_ratio: Share of the target nodes whose features a modification attack may change, in
            0..1.
        edge_ratio: Share of the undirected edges that touch a target node which a modification
            attack may flip, that is add or remove, in 0..1.
        epsilon: Largest change of one feature by a modification attack, above 0.
        features: Form of injected features: `binary` for a bag of words, each absent or present
            as in the clean graph; `frequencies` for rows that are at least 0 and sum to one;
            `None` for any values within the limits. The clean graph must have the same form.
        max_words: Most words of an injected node, at least 1, counted as features that are present
            or above 0; `None` for no limit.
        scale_steps: Whether attacks scale their steps and starts to the feature limits, so that
            the unit and origin of the features do not matter; their step sizes are for limits of
            -0.94 and 0.94. `False` or `None` for the same steps within any limits, as in GRB, whose
            features are all normalised.

    Raises:
        ConfigError: A limit out of range, a count that is not whole, an empty feature range, or a
            number of words without a form of the features.

    Examples:
        >>> from robust_diffusion import Budget
        >>> budget = Budget(max_injected_nodes=3, max_edges_per_injected_node=4)
        >>> budget.injected_degrees
        [4, 4, 4]

        A bag of words, and injected nodes of at most twenty words:

        >>> from robust_diffusion import attack
        >>> from robust_diffusion.attacks import PGD
        >>> from robust_diffusion.models import GCN
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=50)
        >>> data.x = (data.x > 1).float()
        >>> budget = Budget(3, 4, features="binary", max_words=20)
        >>> new = attack(GCN(50, 8, out_channels=7), data, budget, PGD(num_steps=60)).x[100:]
        >>> new.unique().tolist(), bool((new.sum(1) <= 20).all())
        ([0.0, 1.0], True)
    """

    max_injected_nodes: Nodes = 0
    max_edges_per_injected_node: Nodes = 0
    feature_limits: Sequence[float] | None = None
    max_injected_edges: Nodes | None = None
    node_ratio: Share = 0.0
    edge_ratio: Share = 0.0
    epsilon: Positive = 0.1
    features: Literal["binary", "frequencies"] | None = None
    max_words: Count | None = None
    scale_steps: bool | None = True

    def __post_init__(self) -> None:
        """Check the feature limits, which become a pair."""
        if self.max_words is not None and self.features is None:
            raise ConfigError(
                f"budget.max_words={self.max_words}: expected a form of the features, got null; "
                "use budget.features=binary or frequencies"
            )
        limits = self.feature_limits
        if limits is None:
            return
        if len(limits) != 2 or limits[0] > limits[1]:  # equal if all features have one value
            raise ConfigError(
                f"budget.feature_limits={limits}: must be two numbers, the smaller first"
            )
        if max(map(abs, limits)) > LARGEST_FEATURE:
            raise ConfigError(
                f"budget.feature_limits={limits}: expected at most {LARGEST_FEATURE:g}, the "
                "largest of single precision; use null for the range of the clean graph"
            )
        object.__setattr__(self, "feature_limits", tuple(limits))

    @property
    def limits(self) -> tuple[float, float]:
        """Smallest and largest feature value that an attack may write.

        Raises:
            ConfigError: `feature_limits` is `None`, and `resolve` has not filled it in.
        """
        if self.feature_limits is None:
            raise ConfigError("budget.feature_limits=null: give two numbers, the smaller first")
        low, high = self.feature_limits
        return low, high

    @property
    def bounds(self) -> dict[str, Any]:
        """The limits by name, without how attacks use them."""
        return {key: value for key, value in asdict(self).items() if key != "scale_steps"}

    @property
    def centre(self) -> float:
        """Features from which attacks start, before they are clamped to the limits."""
        return sum(self.limits) / 2 if self.scale_steps else 0.0

    @property
    def spread(self) -> float:
        """Standard deviation of the features of a random injection."""
        low, high = self.limits
        return (high - low) / 2 if self.scale_steps else max(-low, high)

    @property
    def unit(self) -> float:
        """Factor from the step sizes of attacks to features."""
        low, high = self.limits
        if not self.scale_steps or low == high:  # equal limits leave no room to step
            return 1.0
        return (high - low) / REFERENCE_RANGE

    @property
    def form(self) -> str:
        """Form of injected features in words; "" if any within the limits are allowed."""
        most = "" if self.max_words is None else f" of at most {self.max_words} words"
        return f"{self.features} features{most}" if self.features else ""

    @property
    def injected_degrees(self) -> list[int]:
        """Edges that each injected node may have.

        If `max_injected_edges` is below nodes times edges per node, it is shared out evenly; the
        nodes injected first get one of the remaining edges each.
        """
        k, m = self.max_injected_nodes, self.max_edges_per_injected_node
        if self.max_injected_edges is None or self.max_injected_edges >= k * m:
            return [m] * k
        per_node, remainder = divmod(self.max_injected_edges, k)
        return [per_node + (i < remainder) for i in range(k)]

    def max_changed_nodes(self, num_targets: int) -> int:
        """Return the largest number of nodes whose features may change.

        Args:
            num_targets: Number of nodes under attack.
        """
        return share(self.node_ratio, num_targets)

    def max_flipped_edges(self, num_edges: int) -> int:
        """Return the largest number of undirected edges that may be flipped.

        Args:
            num_edges: Number of undirected edges that touch a target node.
        """
        return share(self.edge_ratio, num_edges)

    def resolve(self, x: Any) -> "Budget":
        """Return the same budget, with feature limits that are `None` set to the range of `x`.

        For `features="frequencies"` they become 0 and 1.

        Args:
            x: Features of the clean graph, normalised: a tensor of n nodes times f features.

        Raises:
            ConfigError: `x` does not have the form of the features, or other limits were set.
        """
        if self.features is None and self.feature_limits is not None:
            return self
        limits = low, high = x.min().item(), x.max().item()
        if self.features == "binary" and not (low < high and ((x == low) | (x == high)).all()):
            raise ConfigError(
                f"budget.features=binary: expected two values in the clean graph, got others "
                f"between {low:g} and {high:g}; use a dataset of words such as prognn_cora"
            )
        if self.features == "frequencies":
            sums = x.sum(1)
            if low < 0 or not (((sums - 1).abs() < SUM_TOLERANCE) | (sums == 0)).all():
                raise ConfigError(
                    "budget.features=frequencies: expected a clean graph whose rows are at least 0 "
                    f"and sum to one, got {low:g} to {high:g} and sums of {sums.min().item():g} to "
                    f"{sums.max().item():g}; use data.normalize=frequencies"
                )
            limits = 0.0, 1.0
        if self.feature_limits is None:
            return replace(self, feature_limits=limits)
        if self.feature_limits != limits:
            raise ConfigError(
                f"budget.feature_limits={self.feature_limits}: expected {limits} for "
                f"budget.features={self.features}; use null"
            )
        return self

    def within(self, num_targets: int) -> "Budget":
        """Return the same budget, capped at one edge from an injected node to each target node.

        Args:
            num_targets: Number of nodes under attack.

        Raises:
            ConfigError: There is no target node.
        """
        if num_targets == 0:
            raise ConfigError("target nodes: none; an attack needs at least one")
        if max(self.injected_degrees, default=0) <= num_targets:
            return self
        return replace(self, max_edges_per_injected_node=num_targets)


LARGEST_FEATURE = 3.4e38
"""Largest feature in single precision, rounded down."""

SUM_TOLERANCE = 1e-4
"""Rounding by which a row of frequencies may miss one."""


@dataclass(frozen=True)
class SpentBudget:
    """Budget that an attack used; edges are undirected.

    Args:
        injected_nodes: Nodes injected.
        injected_edges: Edges with an injected end.
        max_edges_per_injected_node: Edges of the injected node that has most.
        feature_range: Smallest and largest injected feature value; `None` if no node is injected.
        added_edges: Edges between original nodes that were not there before.
        removed_edges: Edges between original nodes that are gone.
        changed_nodes: Original nodes with a changed feature.
        largest_feature_change: Largest change of one feature of an original node.

    Examples:
        >>> from robust_diffusion import Budget, evaluate
        >>> from robust_diffusion.attacks import RandomInjection
        >>> from robust_diffusion.models import MLP
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> model = MLP(8, 8, out_channels=7)
        >>> report = evaluate(model, data, budget=Budget(2, 3), attacks="random")
        >>> spent = report["random"].spent
        >>> spent.injected_nodes, spent.injected_edges
        (2, 6)
    """

    injected_nodes: int
    injected_edges: int
    max_edges_per_injected_node: int
    feature_range: tuple[float, float] | None
    added_edges: int = 0
    removed_edges: int = 0
    changed_nodes: int = 0
    largest_feature_change: float = 0.0


def share(ratio: float, count: int) -> int:
    """Return a share of a count, rounded down and exact in decimals: 0.29 of 100 is 29, not 28."""
    return math.floor(Fraction(str(ratio)) * count)
