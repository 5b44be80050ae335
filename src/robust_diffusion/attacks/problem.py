"""The problem that an attack optimises: the model's loss at the target nodes."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import MeanAggregation

from robust_diffusion.errors import AttackError, ConfigError, RobustDiffusionError
from robust_diffusion.models.checked import (
    has_own_layers,
    is_of_this_package,
    seeded,
    sorted_by,
    sorted_row,
)
from robust_diffusion.operators import FixedRows

Variable = Literal["features", "edge weights"]


@runtime_checkable
class Classifier(Protocol):
    """Anything that maps (x, edge_index[, edge_weight]) to logits.

    An attack says in `needs` whether the map has to be differentiable, and in what.
    """

    def __call__(self, x: Tensor, edge_index: Tensor, /) -> Tensor:
        """Logits of every node, n x C."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A model, a clean graph, and the nodes at which the model shall err."""

    attack: str  # name of the attack, for messages
    model: Classifier  # the model under attack, frozen
    data: Data  # the clean graph
    targets: Int[Tensor, " t"]  # nodes under attack

    def __post_init__(self) -> None:
        """Refuse a mask, whose values would be read as the nodes 0 and 1."""
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
    def fixed_rows(self) -> FixedRows:
        """Clean features, and what the model's first layers make of them."""
        return self.rows_of(self.x)

    def rows_of(self, x: Float[Tensor, "m f"]) -> FixedRows:
        """Features that stay, in a form that the model computes with as with a plain tensor."""
        return FixedRows(x, whole=not self._takes_rows)

    @cached_property
    def _takes_rows(self) -> bool:
        """True if the model computes with `FixedRows` as with plain rows, values and gradient.

        Compiled and scripted code, for one, looks at the storage, which holds nothing. Models of
        the package and of PyTorch's layers alone are known to, by their tests.
        """
        if is_of_this_package(self.model):
            return True
        x, n = self.x, self.x.size(0)
        edges = torch.cat([self.edge_index, self.edge_index.new_tensor([[0, n], [n, 0]])], 1)
        results = []
        try:
            for place in (lambda new: torch.cat([x, new]), FixedRows(x).followed_by):
                with torch.enable_grad(), seeded(0):
                    new = x[:1].clone().requires_grad_()
                    logits = self.model(place(new), edges)
                    slope = torch.autograd.grad(logits.square().sum(), new)
                    results.append((logits, *slope))
            for plain, rows in zip(*results, strict=True):
                atol = 1e-4 * plain.abs().max().item()
                torch.testing.assert_close(rows, plain, rtol=1e-3, atol=atol)
        except Exception:  # of anyone's forward, which the attack will meet with plain rows
            return False
        return True

    @cached_property
    def clean_logits(self) -> Float[Tensor, "n c"]:
        """Logits of every node of the clean graph."""
        try:
            with torch.no_grad():
                logits = self.model(self.x, self.edge_index)
        except (RobustDiffusionError, torch.OutOfMemoryError):
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
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

        The labels of the graph, if it has any; otherwise the model's predictions on it.
        """
        predicted = self.clean_logits.argmax(1)
        return self.data.y if isinstance(self.data.y, Tensor) else predicted

    @cached_property
    def labels(self) -> Int[Tensor, " t"]:
        """Classes of the target nodes."""
        return self.all_labels[self.targets]

    def logits(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None
    ) -> Float[Tensor, "t c"]:
        """Logits of the target nodes on an attacked graph."""
        return self.logits_of_all(x, edge_index, edge_weight)[self.targets]

    def logits_of_all(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None
    ) -> Float[Tensor, "m c"]:
        """Logits of every node of an attacked graph."""
        model: Callable[..., Tensor] = self.model
        if edge_weight is None:
            return model(x, edge_index)
        if self.takes_weights:
            return model(x, edge_index, edge_weight)
        assert isinstance(model, nn.Module)
        # Sorted here already, if the model's inputs are to be, so that weights fit the edges.
        edge_index, edge_weight = sorted_by(self._row, edge_index, edge_weight)
        with weighted_edges(model, edge_index, edge_weight):
            masked: Tensor = model(x, edge_index)
            return masked

    def right(self, x: Tensor, edge_index: Tensor) -> int:
        """Number of target nodes that are classified as their labels say."""
        with torch.no_grad():
            return int((self.logits(x, edge_index).argmax(1) == self.labels).sum())

    def loss(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        *,
        cap: float | None = None,
    ) -> Float[Tensor, ""]:
        """Mean cross-entropy of the target nodes on an attacked graph."""
        labels = self.labels  # before the attacked graph, so that a model that does not fit tells
        logits = self.logits(x, edge_index, edge_weight)
        if cap is None:
            return F.cross_entropy(logits, labels)
        return F.cross_entropy(logits, labels, reduction="none").clamp_max(cap).mean()

    def slope(self, value: Tensor, variable: Tensor, wrt: Variable) -> Tensor:
        """Gradient of a scalar with respect to features or edge weights."""
        slope = gradient(value, variable, attack=self.attack, wrt=wrt)
        check_finite(slope.isfinite().all(), attack=self.attack, wrt=wrt)
        return slope

    def check_edge_weights(self) -> None:
        """Refuse a model that has no gradient with respect to edges.

        One that takes no edge weights may be of PyTorch Geometric's layers, which weigh their edges
        instead; see `weighted_edges`. Attention is still normalised over all edges, those of weight
        0 among them, so that its gradient is a guide and no more; see `drops_edges_of_weight_0`.
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
            # A wrapper of this package passes on all that it is given.
            in_package = type(model).__module__.startswith("robust_diffusion.")
            if not (in_package and hasattr(model, "model")):
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
        """True if a mask of ones on the messages changes nothing, and has a gradient."""
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
        """True if the logits depend on weights, as autograd sees it; `None` if 1 is no weight."""
        ones = self.x.new_ones(self.edge_index.size(1)).requires_grad_()
        try:
            # Seeded, so that a model that samples draws alike, and no one else draws otherwise.
            with torch.no_grad(), seeded(0):
                plain = model(self.x, self.edge_index)
            with torch.enable_grad(), seeded(0):
                logits = weighted(ones)
            if not torch.allclose(logits, plain, rtol=1e-3, atol=1e-4):
                return None
            slope = None
            if logits.requires_grad:
                (slope,) = torch.autograd.grad(logits.square().sum(), ones, allow_unused=True)
        except Exception:  # of anyone's layers, which may know neither weights nor masks
            return None
        return slope is not None and bool(slope.any())


def _takes_three(model: Callable[..., Tensor]) -> bool:
    """True of a model that can be called with a third argument by its place."""
    function = model.forward if isinstance(model, nn.Module) else model
    try:
        inspect.signature(function).bind(None, None, None)
    except TypeError:
        return False
    return True


@contextmanager
def weighted_edges(
    model: nn.Module, edge_index: Int[Tensor, "2 e"], weight: Float[Tensor, " e"]
) -> Iterator[None]:
    """Within it, every layer of PyTorch Geometric weighs its edges.

    A layer that takes `edge_weight` gets it, so that its degrees do not count an edge of weight 0,
    and a mean divides by the sum of the weights. The messages of all other layers are multiplied.
    """
    with ExitStack() as stack:
        for layer in model.modules():
            if not isinstance(layer, MessagePassing):
                continue
            if "edge_weight" in inspect.signature(layer.forward).parameters:
                passing = partial(_pass_weight, edge_index, weight)
                hook = layer.register_forward_pre_hook(passing, with_kwargs=True)
                stack.callback(hook.remove)
            else:
                set_masks(layer, weight, edge_index, apply_sigmoid=False)
                stack.callback(clear_masks, layer)
            if isinstance(layer.aggr_module, MeanAggregation):
                mean = partial(_divide_by_weight, edge_index, weight)
                hook = layer.aggr_module.register_forward_hook(mean, with_kwargs=True)
                stack.callback(hook.remove)
        yield


def _pass_weight(
    edge_index: Tensor, weight: Tensor, layer: nn.Module, args: Any, kwargs: Any
) -> tuple[Any, Any]:
    call = inspect.signature(layer.forward).bind(*args, **kwargs)
    factor = _with_loops(edge_index, weight, call.arguments["edge_index"].size(1))
    edge_weight = call.arguments.get("edge_weight")
    call.arguments["edge_weight"] = factor if edge_weight is None else edge_weight * factor
    return call.args, call.kwargs


def _divide_by_weight(
    edge_index: Tensor, weight: Tensor, _: nn.Module, args: Any, kwargs: Any, mean: Tensor
) -> Tensor:
    dst = kwargs["index"]
    none = mean.new_zeros(mean.size(kwargs["dim"]))
    count = none.index_add(0, dst, mean.new_ones(dst.numel()))
    total = none.index_add(0, dst, _with_loops(edge_index, weight, dst.numel()))
    # At least 1, so that the first edge of a node without any has the slope of adding it.
    shape = [1] * mean.ndim
    shape[kwargs["dim"]] = -1
    return mean * (count / total.clamp_min(1)).view(shape)


def _with_loops(edge_index: Tensor, weight: Tensor, count: int) -> Tensor:
    """Weights of a layer's edges, 1 on the self-loops that it adds to those of the graph."""
    if weight.size(0) == count:
        return weight
    without_loops = weight[edge_index[0] != edge_index[1]]
    return torch.cat([without_loops, without_loops.new_ones(count - without_loops.size(0))])


def clean_graph(data: Data) -> tuple[Float[Tensor, "n f"], Int[Tensor, "2 e"]]:
    """Features and edges of a graph that has both."""
    assert data.x is not None
    assert data.edge_index is not None
    return data.x, data.edge_index


def gradient(
    loss: Float[Tensor, ""], variable: Float[Tensor, "..."], *, attack: str, wrt: Variable
) -> Float[Tensor, "..."]:
    """Gradient of a loss."""
    result = None
    if loss.requires_grad:
        (result,) = torch.autograd.grad(loss, variable, allow_unused=True)
    if result is None:
        raise _not_differentiable(attack, wrt)
    return result


def check_finite(finite: bool | Tensor, *, attack: str, wrt: Variable) -> None:
    """Refuse gradients that were not finite."""
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
