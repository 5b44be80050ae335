"""Base of all attacks, and the perturbed graph that one returns."""

from abc import ABC
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks.budget import OF_INJECTIONS, OF_MODIFICATIONS, Budget
from robust_diffusion.attacks.budget import SpentBudget as SpentBudget
from robust_diffusion.attacks.task import Task as Task
from robust_diffusion.errors import AttackError, GradientError
from robust_diffusion.models.victim import Victim as Victim

Variable = Literal["features", "edge weights"]


def clean_graph(data: Data) -> tuple[Float[Tensor, "n f"], Int[Tensor, "2 e"]]:
    """Return the features and edges of a graph that has both."""
    assert data.x is not None
    assert data.edge_index is not None
    return data.x, data.edge_index


def gradient(
    loss: Float[Tensor, ""], variable: Float[Tensor, "..."], wrt: Variable
) -> Float[Tensor, "..."]:
    """Return the gradient of a loss; raise a `GradientError` if there is none."""
    result = None
    if loss.requires_grad:
        (result,) = torch.autograd.grad(loss, variable, allow_unused=True)
    if result is None:
        raise GradientError.missing(wrt)
    return result


def finite_gradient(
    loss: Float[Tensor, ""], variable: Float[Tensor, "..."], wrt: Variable
) -> Float[Tensor, "..."]:
    """Return the gradient of a loss; raise a `GradientError` if it is not finite, either."""
    slope = gradient(loss, variable, wrt)
    check_finite(slope.isfinite().all(), wrt)
    return slope


def check_finite(finite: bool | Tensor, wrt: Variable) -> None:
    """Raise a `GradientError` unless the gradients were finite."""
    if not finite:
        raise GradientError(
            f"the gradient with respect to the {wrt} is not finite; check the attacked model", wrt
        )


FeaturesAndEdges = tuple[Float[Tensor, "m f"], Int[Tensor, "2 e"]]
"""Features and edges."""

Kind = Literal["injection", "modification"]
Need = Literal["predictions", "feature_gradient", "edge_gradient"]
Waivable = Literal["epsilon", "edge_ratio"]
"""Limits of a budget that the published version of some attack does not observe."""


class GivenUp(NamedTuple):
    """Reason why a part of an ensemble could not be run."""

    reason: str
    variable: str = ""  # features or edge weights, if it lacks a finite gradient in these


@dataclass(frozen=True, eq=False)
class PerturbedGraph:
    """An attacked graph; original nodes come first, injected nodes after them.

    Args:
        x: Features of original and injected nodes, normalised.
        edge_index: Edges, both directions, without self-loops or duplicates.
        num_original_nodes: Number of original nodes n.
        part_accuracy: Lowest accuracy at the targets that each part of an ensemble reached, in
            0..1, in the order in which the parts ran; empty for other attacks.
        part: The part that made this graph; "" if the attack has none.
        given_up: Reason by part, for the parts that could not be run.
        clean: The graph before the attack, from which `to_data` takes labels and masks, and with
            which this graph shares unchanged rows of `x`; attacks leave it to their caller.

    Examples:
        >>> import torch
        >>> from robust_diffusion.attacks import PerturbedGraph
        >>> edge_index = torch.tensor([[0, 1, 2, 0], [1, 0, 0, 2]])
        >>> graph = PerturbedGraph(torch.zeros(3, 5), edge_index, num_original_nodes=2)
        >>> graph.to_data().injected_mask.tolist()
        [False, False, True]
    """

    x: Float[Tensor, "m f"]
    edge_index: Int[Tensor, "2 e"]
    num_original_nodes: int
    part_accuracy: Mapping[str, float] = field(default_factory=dict)
    part: str = ""
    given_up: Mapping[str, GivenUp] = field(default_factory=dict)
    clean: Data | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Hold only the rows of `x` that differ from `clean`, if it is known.

        The graphs of a report would otherwise each hold gigabytes that are the same in all.
        """
        n, rows = self.num_original_nodes, None if self.clean is None else self.clean.x
        if not isinstance(rows, Tensor) or rows.shape != self.x[:n].shape:
            return
        if (rows.dtype, rows.device) == (self.x.dtype, self.x.device):
            changed = (self.x[:n] != rows).any(1).nonzero().squeeze(1)
            own = rows, changed, self.x[changed], self.x[n:].clone()
            object.__setattr__(self, "_rows", own)
            object.__delattr__(self, "x")

    if not TYPE_CHECKING:  # a type checker would accept any attribute

        def __getattr__(self, name: str) -> Any:
            """Put `x` together; Python calls this for attributes that are not there."""
            if name != "x" or "_rows" not in vars(self):
                raise AttributeError(f"PerturbedGraph has no attribute {name}")
            rows, changed, moved, new = vars(self)["_rows"]
            return torch.cat([rows, new]).index_copy_(0, changed, moved)

    @property
    def num_injected_nodes(self) -> int:
        """Number of nodes that the attack added; counted without putting `x` together."""
        rows = vars(self).get("_rows")
        return len(self.x) - self.num_original_nodes if rows is None else len(rows[-1])

    def __repr__(self) -> str:
        """Show the size, without the tensors."""
        nodes = f"{self.num_original_nodes} + {self.num_injected_nodes} nodes"
        return f"PerturbedGraph({nodes}, {self.edge_index.size(1) // 2} edges)"

    def to_data(self) -> Data:
        """Convert the attacked graph to PyG's `Data`, on the CPU.

        Returns:
            `Data` with x, edge_index and `injected_mask`. If `clean` is known, it also has y (-1 at
            injected nodes), the masks (false at injected nodes) and the index sets.
        """
        n, x = self.num_original_nodes, self.x.cpu()
        new = x.size(0) - n
        data = Data(x=x, edge_index=self.edge_index.cpu())
        data.injected_mask = torch.arange(x.size(0)) >= n
        for key, value in ({} if self.clean is None else self.clean.to_dict()).items():
            if not isinstance(value, Tensor) or key in data:
                continue
            value = value.detach().cpu()
            if key == "y":
                value = value if value.is_signed() else value.long()
                data.y = torch.cat([value, value.new_full((new, *value.shape[1:]), -1)])
            elif key.endswith("mask") and value.dtype == torch.bool and value.shape[:1] == (n,):
                data[key] = torch.cat([value, value.new_zeros(new, *value.shape[1:])])
            elif key.endswith("_idx") or key.startswith(("index_", "idx_")):
                data[key] = value
        return data


def spent_budget(clean: Data, perturbed: PerturbedGraph) -> SpentBudget:
    """Count the budget used from the two graphs; the clean one must be undirected and simple."""
    x, edge_index = clean_graph(clean)
    n, edges, attacked = perturbed.num_original_nodes, perturbed.edge_index, perturbed.x
    injected = attacked[n:]
    inside = (edges < n).all(0)
    degrees = torch.bincount(edges[0], minlength=len(attacked))[n:]
    before, after = (undirected_edge_numbers(e, n) for e in (edge_index, edges[:, inside]))
    changed = (attacked[:n] != x).any(1).nonzero().squeeze(1)
    change = (attacked[changed] - x[changed]).abs()  # of all rows, it would fill the memory
    return SpentBudget(
        injected_nodes=injected.size(0),
        injected_edges=int((~inside).sum().item()) // 2,
        max_edges_per_injected_node=int(degrees.max().item()) if injected.size(0) else 0,
        feature_range=(injected.min().item(), injected.max().item()) if injected.numel() else None,
        added_edges=int((~torch.isin(after, before)).sum().item()),
        removed_edges=int((~torch.isin(before, after)).sum().item()),
        changed_nodes=len(changed),
        largest_feature_change=change.max().item() if change.numel() else 0.0,
    )


def undirected_edge_numbers(edge_index: Int[Tensor, "2 e"], num_nodes: int) -> Int[Tensor, " u"]:
    """Number each undirected edge u < v by u n + v, in ascending order."""
    src, dst = edge_index
    upper = src < dst
    ids: Tensor = src[upper] * num_nodes + dst[upper]
    return ids.sort().values


class _ClassName:
    """Name of a class in lower case, for attacks that name none."""

    def __get__(self, _: object, cls: type) -> str:
        return cls.__name__.lower()


class Attack(ABC):
    """An attack on the predictions for some target nodes of a graph.

    To add an attack, write one such class in `attacks/<kind>/<name>.py` and one
    `conf/attack/<name>.yaml`.

    Attributes:
        name: Name in the configuration and in messages; by default that of the class.
        kind: `injection` adds nodes and leaves the others alone; `modification` changes features
            of target nodes and edges that touch one.
        needs: What the attack needs from the model: predictions, a gradient with respect to the
            features, or one with respect to the edge weights.
        is_worst_case: Whether the attack estimates worst-case accuracy; if so, it receives the
            true labels under every threat model.
        changes_features: Whether a modification may also change features, within
            `budget.node_ratio`; if not, it only flips edges.

    Examples:
        >>> from robust_diffusion import Budget, attack
        >>> from robust_diffusion.attacks import PGD
        >>> from robust_diffusion.models import GCN
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> attack(GCN(8, 8, out_channels=7), data, Budget(2, 3), PGD(num_steps=2))
        PerturbedGraph(100 + 2 nodes, 166 edges)
    """

    name: ClassVar[str] = _ClassName()  # type: ignore[assignment]
    kind: ClassVar[Kind]
    needs: ClassVar[frozenset[Need]] = frozenset({"predictions"})
    is_worst_case: ClassVar[bool] = False
    changes_features: ClassVar[bool] = True
    version: ClassVar[int] = 1  # incremented whenever the attack's results change

    @classmethod
    def unread(cls, options: Mapping[str, Any]) -> frozenset[str]:
        """Return the settings that the attack does not read: of a run, or its own with `options`.

        An attack that reads other limits of the budget than its kind does overrides this.
        """
        limits = OF_MODIFICATIONS if cls.kind == "injection" else OF_INJECTIONS | {"scale_steps"}
        if cls.kind == "modification" and not cls.changes_features:
            limits |= {"feature_limits", "node_ratio", "epsilon"}
        keys = {f"budget.{limit}" for limit in limits}
        if cls.is_worst_case or "predictions" not in cls.needs:
            keys.add("threat.attacker_knows")
        if not (cls.is_worst_case or cls.needs):  # the model is never evaluated
            keys |= {"threat.adjoint", "threat.gradient"}
        return frozenset(keys)

    @property
    def unbounded(self) -> Mapping[Waivable, str]:
        """Limits that the attack by definition does not observe -> how it reads them instead.

        Its spending is still counted and recorded, but is not a violation of these limits.
        """
        return {}

    def expected_passes(self, budget: Budget, task: Task, victim: Victim) -> int | None:
        """Estimate the number of forward passes, from which the remaining time is computed.

        The default is one pass per step, and `None` if the attack has no `num_steps`.

        Args:
            budget: Limits of the attack.
            task: What the attacker knows.
            victim: The model under attack, of which no pass is counted here.
        """
        return getattr(self, "num_steps", None) or None

    def __call__(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> PerturbedGraph:
        """Perturb the graph so that the victim errs on the target nodes.

        Neither the task nor the victim's model is changed.

        Args:
            victim: The model under attack: a surrogate (black box) or the tested one (white box).
            task: What the attacker knows; see `Task.attacker_view`.
            budget: Limits of the attack.
            generator: CPU generator of every random choice.

        Returns:
            The perturbed graph, within the budget except for the limits in `unbounded`.

        Raises:
            ConfigError: The budget cannot be applied to the target nodes.
            AttackError: The model cannot be differentiated as the attack needs, or has a gradient
                that is not finite.
        """
        with victim, self.named_errors():
            self.check(victim)
            found = self.perturb(victim, task, budget.within(task.targets.numel()), generator)
            x, edge_index = self.paired(found)
        return PerturbedGraph(x, edge_index, task.x.size(0))

    def check(self, victim: Victim) -> None:
        """Raise an `AttackError` if the model does not fit the graph, or its logits are not finite.

        A model that the attack never evaluates is accepted.
        """
        if self.is_worst_case or self.needs:
            _ = victim.clean_logits

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Prefix an `AttackError` with the attack's name."""
        try:
            yield
        except AttackError as error:
            error.args = (f"attack={self.name}: {error}",)
            raise

    def paired(self, returned: object) -> FeaturesAndEdges:
        """Return the attack's result if it is a pair of tensors; raise an `AttackError` if not."""
        match returned:
            case (Tensor() as x, Tensor() as edge_index):
                return x, edge_index
            case tuple() | list():
                got = f"({', '.join(type(item).__name__ for item in returned)})"
            case _:
                got = "nothing" if returned is None else f"a {type(returned).__name__}"
        raise AttackError(f"returns {got}; it must return a pair of tensors, features and edges")

    def perturb(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Return features and edges of the attacked graph; the victim is frozen meanwhile."""
        raise NotImplementedError
