"""Base of all attacks: the problem that one optimises, and the perturbed graph that it returns."""

import inspect
from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks.budget import OF_INJECTIONS, OF_MODIFICATIONS, Budget
from robust_diffusion.attacks.budget import SpentBudget as SpentBudget
from robust_diffusion.checks import validated
from robust_diffusion.errors import (
    AttackError,
    ConfigError,
    RobustDiffusionError,
    is_out_of_memory,
)
from robust_diffusion.models.checked import frozen as frozen
from robust_diffusion.models.checked import (
    has_own_layers,
    is_of_this_package,
    seeded,
    sorted_by,
    sorted_row,
    weighted_edges,
)
from robust_diffusion.models.grb_model import GRBModel
from robust_diffusion.models.stack import takes_features
from robust_diffusion.operators import AnyFeatures, InjectedRows

Variable = Literal["features", "edge weights"]


@runtime_checkable
class Classifier(Protocol):
    """Anything that maps (x, edge_index[, edge_weight]) to logits.

    The attribute `needs` of an attack lists the inputs in which the map must be differentiable.
    """

    def __call__(self, x: Tensor, edge_index: Tensor, /) -> Tensor:
        """Return the logits of every node, n x C."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A model, a clean graph, and the target nodes."""

    attack: str  # name of the attack, for messages
    model: Classifier  # the model under attack, frozen
    data: Data  # the clean graph
    targets: Int[Tensor, " t"]  # nodes under attack

    def __post_init__(self) -> None:
        """Reject a boolean mask, whose values would be read as the nodes 0 and 1."""
        if self.targets.dtype == torch.bool:
            raise ConfigError(
                f"target nodes: attack={self.attack} expected node numbers, got a boolean mask; "
                "use mask.nonzero().flatten()"
            )

    @cached_property
    def x(self) -> Float[Tensor, "n f"]:
        """Clean features."""
        return clean_graph(self.data)[0]

    @cached_property
    def edge_index(self) -> Int[Tensor, "2 e"]:
        """Clean edges."""
        return clean_graph(self.data)[1]

    @cached_property
    def with_rows(self) -> Callable[[Tensor], AnyFeatures]:
        """Append rows to the clean features; the model's first layers of these are cached."""
        return self.appending(self.x)

    def appending(self, x: Float[Tensor, "m f"]) -> Callable[[Tensor], AnyFeatures]:
        """Return a function that appends rows to features that stay fixed, for this model."""
        if takes_features(self.model):
            return partial(InjectedRows, x, {})
        return lambda free: torch.cat([x, free])

    @cached_property
    def clean_logits(self) -> Float[Tensor, "n c"]:
        """Logits of every node of the clean graph."""
        try:
            with torch.no_grad():
                logits = self.model(self.x, self.edge_index)
        except RobustDiffusionError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            if is_out_of_memory(error):
                raise
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise AttackError(
                f"attack={self.attack}: the model does not take a graph of {self.x.size(1)} "
                f"features per node ({reason}); attack one that was trained on this graph"
            ) from error
        if not torch.isfinite(logits).all():
            raise AttackError(
                f"attack={self.attack}: the model's logits on the clean graph are not finite; "
                "train it again"
            )
        return logits

    @cached_property
    def all_labels(self) -> Int[Tensor, " n"]:
        """Class of every node that the attack drives the model away from.

        These are the labels of the graph. The model's predictions replace a label of -1, or all
        labels if the graph has none.
        """
        predicted, y = self.clean_logits.argmax(1), self.data.y
        return torch.where(y >= 0, y, predicted) if isinstance(y, Tensor) else predicted

    @cached_property
    def labels(self) -> Int[Tensor, " t"]:
        """Classes of the target nodes."""
        return self.all_labels[self.targets]

    def logits(
        self, x: AnyFeatures, edge_index: Tensor, edge_weight: Tensor | None = None
    ) -> Float[Tensor, "t c"]:
        """Return the logits of the target nodes on an attacked graph."""
        return self.logits_of_all(x, edge_index, edge_weight)[self.targets]

    def logits_of_all(
        self, x: AnyFeatures, edge_index: Tensor, edge_weight: Tensor | None = None
    ) -> Float[Tensor, "m c"]:
        """Return the logits of every node of an attacked graph."""
        model: Callable[..., Tensor] = self.model
        if edge_weight is None:
            return model(x, edge_index)
        if self.takes_weights:
            return model(x, edge_index, edge_weight)
        assert isinstance(model, nn.Module)
        # If the model sorts its inputs, sort them here, so that the weights still fit the edges.
        edge_index, edge_weight = sorted_by(self._row, edge_index, edge_weight)
        with weighted_edges(model, edge_index, edge_weight):
            masked: Tensor = model(x, edge_index)
            return masked

    def right(self, x: Tensor, edge_index: Tensor) -> int:
        """Count the correctly classified target nodes."""
        with torch.no_grad():
            return int((self.logits(x, edge_index).argmax(1) == self.labels).sum())

    def loss(
        self,
        x: AnyFeatures,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        *,
        cap: float | None = None,
    ) -> Float[Tensor, ""]:
        """Return the mean cross-entropy of the target nodes on an attacked graph."""
        labels = self.labels  # first, so that a model that does not fit the graph raises here
        logits = self.logits(x, edge_index, edge_weight)
        if cap is None:
            return F.cross_entropy(logits, labels)
        return F.cross_entropy(logits, labels, reduction="none").clamp_max(cap).mean()

    def slope(self, value: Tensor, variable: Tensor, wrt: Variable) -> Tensor:
        """Return the gradient of a scalar with respect to features or edge weights."""
        slope = gradient(value, variable, attack=self.attack, wrt=wrt)
        check_finite(slope.isfinite().all(), attack=self.attack, wrt=wrt)
        return slope

    def check_edge_weights(self) -> None:
        """Reject a model that has no gradient with respect to edges.

        A model that takes no edge weights may still consist of PyTorch Geometric layers, whose
        messages can be weighted instead; see `weighted_edges`. Attention is then normalised over
        all edges, including those of weight 0, so its gradient is only a guide; see
        `drops_edges_of_weight_0`.
        """
        if not self.takes_weights and not self._takes_masks:
            raise _not_differentiable(self.attack, "edge weights")

    @cached_property
    def takes_weights(self) -> bool:
        """True if the third argument of the model is an edge weight.

        Weights of 1 must leave the logits as they are. A model that ignores its third argument
        takes no weights if a mask on its messages does more; see `check_edge_weights`.
        """
        model: Any = self.model
        while _takes_three(model):
            # A wrapper of this package forwards all arguments to the model inside.
            in_package = type(model).__module__.startswith("robust_diffusion.")
            if not (in_package and hasattr(model, "model")) or isinstance(model, GRBModel):
                break
            model = model.model
        else:
            return False
        if is_of_this_package(model):
            return True
        slope = self._slope_by(model, lambda ones: model(self.x, self.edge_index, ones))
        return slope is not None and (slope or not self._takes_masks)

    @cached_property
    def _row(self) -> int | None:
        return sorted_row(self.edge_index)

    @cached_property
    def drops_edges_of_weight_0(self) -> bool:
        """True if new edges of weight 0 leave the logits as they are.

        Otherwise, the gradient with respect to absent edges is that of another graph.
        """
        if has_own_layers(self.model):
            return True
        n, there = self.x.size(0), self.edge_index
        lower = torch.arange(n // 2, device=there.device)
        new = torch.stack([lower, lower + n // 2])
        new = new[:, ~torch.isin(new[0] * n + new[1], there[0] * n + there[1])]
        edges = torch.cat([there, new, new.flip(0)], 1)
        weight = self.x.new_zeros(edges.size(1))
        weight[: there.size(1)] = 1
        with torch.no_grad():
            with seeded(0):
                plain = self.logits_of_all(self.x, there)
            with seeded(0):
                weighed = self.logits_of_all(self.x, edges, weight)
        return torch.allclose(weighed, plain, rtol=1e-3, atol=1e-4)

    @cached_property
    def _takes_masks(self) -> bool:
        """True if a mask of ones on the messages keeps the logits and has a gradient."""
        model = self.model
        if not isinstance(model, nn.Module):
            return False

        def masked(ones: Tensor) -> Tensor:
            with weighted_edges(model, self.edge_index, ones):
                return model(self.x, self.edge_index)  # type: ignore[no-any-return]

        return bool(self._slope_by(model, masked))

    def _slope_by(
        self, model: Callable[..., Tensor], weighted: Callable[[Tensor], Tensor]
    ) -> bool | None:
        """Return whether autograd sees the weights; `None` if weights of 1 change the logits."""
        ones = self.x.new_ones(self.edge_index.size(1)).requires_grad_()
        try:
            # Seeded, so that a model that samples draws the same both times, and the caller's
            # random state stays as it is.
            with torch.no_grad(), seeded(0):
                plain = model(self.x, self.edge_index)
            with torch.enable_grad(), seeded(0):
                logits = weighted(ones)
            if not torch.allclose(logits, plain, rtol=1e-3, atol=1e-4):
                return None
            slope = None
            if logits.requires_grad:
                (slope,) = torch.autograd.grad(logits.square().sum(), ones, allow_unused=True)
        except Exception as error:  # custom layers may support neither weights nor masks
            if is_out_of_memory(error):
                raise
            return None
        return slope is not None and bool(slope.any())


def _takes_three(model: Callable[..., Tensor]) -> bool:
    """Return whether a model can be called with three positional arguments."""
    function = model.forward if isinstance(model, nn.Module) else model
    try:
        inspect.signature(function).bind(None, None, None)
    except TypeError:
        return False
    return True


def clean_graph(data: Data) -> tuple[Float[Tensor, "n f"], Int[Tensor, "2 e"]]:
    """Return the features and edges of a graph that has both."""
    assert data.x is not None
    assert data.edge_index is not None
    return data.x, data.edge_index


def gradient(
    loss: Float[Tensor, ""], variable: Float[Tensor, "..."], *, attack: str, wrt: Variable
) -> Float[Tensor, "..."]:
    """Return the gradient of a loss."""
    result = None
    if loss.requires_grad:
        (result,) = torch.autograd.grad(loss, variable, allow_unused=True)
    if result is None:
        raise _not_differentiable(attack, wrt)
    return result


def check_finite(finite: bool | Tensor, *, attack: str, wrt: Variable) -> None:
    """Raise an `AttackError` unless the gradients were finite."""
    if not finite:
        raise AttackError(
            f"attack={attack}: the gradient with respect to the {wrt} is not finite; check the "
            "attacked model"
        )


def _not_differentiable(attack: str, wrt: str) -> AttackError:
    return AttackError(
        f"attack={attack}: the model is not differentiable in the {wrt}; attack a differentiable "
        "surrogate (threat=black_box) or choose an attack that needs no such gradient"
    )


FeaturesAndEdges = tuple[Float[Tensor, "m f"], Int[Tensor, "2 e"]]
"""Features and edges."""

Kind = Literal["injection", "modification"]
Need = Literal["predictions", "feature_gradient", "edge_gradient"]
Waivable = Literal["epsilon", "edge_ratio"]
"""Limits of a budget that the published version of some attack does not observe."""


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
    given_up: Mapping[str, str] = field(default_factory=dict)
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
            return torch.cat([rows.index_copy(0, changed, moved), new])

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
    change = (attacked[:n] - x).abs()
    return SpentBudget(
        injected_nodes=injected.size(0),
        injected_edges=int((~inside).sum().item()) // 2,
        max_edges_per_injected_node=int(degrees.max().item()) if injected.size(0) else 0,
        feature_range=(injected.min().item(), injected.max().item()) if injected.numel() else None,
        added_edges=int((~torch.isin(after, before)).sum().item()),
        removed_edges=int((~torch.isin(before, after)).sum().item()),
        changed_nodes=int(change.any(1).sum().item()),
        largest_feature_change=change.max().item() if change.numel() else 0.0,
    )


def undirected_edge_numbers(edge_index: Int[Tensor, "2 e"], num_nodes: int) -> Int[Tensor, " u"]:
    """Number each undirected edge u < v by u n + v, in ascending order."""
    src, dst = edge_index
    upper = src < dst
    ids: Tensor = src[upper] * num_nodes + dst[upper]
    return ids.sort().values


class Attack(ABC):
    """An attack on the predictions for some target nodes of a graph.

    To add an attack, write one such class in `attacks/<kind>/<name>.py` and one
    `conf/attack/<name>.yaml`.

    Attributes:
        name: Name in the configuration and in messages.
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

    name: ClassVar[str]
    kind: ClassVar[Kind]
    needs: ClassVar[frozenset[Need]] = frozenset({"predictions"})
    is_worst_case: ClassVar[bool] = False
    changes_features: ClassVar[bool] = True
    version: ClassVar[int] = 1  # incremented whenever the attack's results change

    def __init_subclass__(cls, **options: Any) -> None:  # keywords of the class statement
        """Validate the constructor arguments of every attack against their annotations."""
        super().__init_subclass__(**options)
        if not hasattr(cls, "name"):
            cls.name = cls.__name__.lower()
        validated("attacks.{self.name}")(cls)

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
            keys.add("threat.labels")
        if not (cls.is_worst_case or cls.needs):  # the model is never evaluated
            keys |= {"threat.adjoint", "threat.gradient"}
        return frozenset(keys)

    @property
    def unbounded(self) -> Mapping[Waivable, str]:
        """Limits that the attack by definition does not observe -> how it reads them instead.

        Its spending is still counted and recorded, but is not a violation of these limits.
        """
        return {}

    def expected_passes(self, budget: Budget, num_targets: int) -> int | None:
        """Estimate the number of forward passes, from which the remaining time is computed.

        The default is one pass per step, and `None` if the attack has no `num_steps`.
        """
        return getattr(self, "num_steps", None) or None

    def __call__(
        self,
        model: Classifier,
        data: Data,
        target_nodes: Int[Tensor, " t"],
        budget: Budget,
        generator: Generator,
    ) -> PerturbedGraph:
        """Perturb the graph so that `model` errs on the target nodes.

        Neither `data` nor `model` is changed; the model keeps its weights, gradients and mode.

        Args:
            model: The model under attack: a surrogate (black box) or the victim (white box).
            data: The clean graph, with normalised x and edge_index. If it has y, the attack uses
                these labels instead of the model's predictions. A poisoning attack also reads
                index_train, the nodes that the model will be trained on.
            target_nodes: Nodes under attack.
            budget: Limits of the attack.
            generator: CPU generator of every random choice.

        Returns:
            The perturbed graph, within the budget except for the limits in `unbounded`.

        Raises:
            ConfigError: The budget cannot be applied to the target nodes.
            AttackError: The model does not fit the graph, cannot be differentiated as the attack
                needs, or has a gradient that is not finite.
        """
        budget = budget.within(target_nodes.numel())
        with frozen(model):
            problem = Problem(self.name, model, data, target_nodes)
            x, edge_index = self.paired(self.perturb(problem, budget, generator))
        return PerturbedGraph(x, edge_index, problem.x.size(0))

    def paired(self, returned: object) -> FeaturesAndEdges:
        """Return the attack's result if it is a pair of tensors; raise an `AttackError` if not."""
        match returned:
            case (Tensor() as x, Tensor() as edge_index):
                return x, edge_index
            case tuple() | list():
                got = f"({', '.join(type(item).__name__ for item in returned)})"
            case _:
                got = "nothing" if returned is None else f"a {type(returned).__name__}"
        raise AttackError(
            f"{type(self).__name__}: returns {got}; it must return a pair of tensors, features "
            "and edges"
        )

    def perturb(self, problem: Problem, budget: Budget, generator: Generator) -> FeaturesAndEdges:
        """Return features and edges of the attacked graph; the model is frozen meanwhile."""
        raise NotImplementedError
