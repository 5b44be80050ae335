"""A victim: a trained model as attacks and tests call it.

Whatever is odd about a model is handled here, once. Every other module calls a `Victim`, and sees
logits.
"""

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from traceback import extract_tb
from typing import Any, Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.data import Data
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import MeanAggregation

from robust_diffusion.errors import (
    AttackError,
    ConfigError,
    GradientError,
    RobustDiffusionError,
    is_out_of_memory,
)
from robust_diffusion.models.adaptive import adaptive_form, with_solver
from robust_diffusion.models.modules import frozen, seeded
from robust_diffusion.models.stack import takes_features
from robust_diffusion.operators import AnyFeatures, InjectedRows, InjectedTensor
from robust_diffusion.operators.features import LARGE
from robust_diffusion.operators.propagation import Propagator
from robust_diffusion.system.tensor_hashes import ByTensor, state_hash

DRAWS = 8
"""Number of forward passes over which a model that samples is averaged."""

PROBING_SEED = 2**32 - 1
"""Seed of the passes that probe a model, which is the last that evaluations may use."""

OF_THIS_PACKAGE = ("robust_diffusion.", "torch.nn.")
OF_PYG = ("torch_geometric.", "torch.nn.modules.")
WITHOUT_EDGES = ("torch_geometric.nn.aggr.", "torch_geometric.nn.dense.")
"""Packages of layers that are covered by tests, and of others that receive no edges."""

FINER = ("rk4", 4)
"""Second solver for testing a PDE of fixed steps, and its number of steps per original step."""

SORTED = ByTensor()
"""Sorted edges and their permutation, by the tensor that is sorted."""

EdgeGradient = Literal["exact", "rough", "none"]


def sorted_row(edge_index: Int[Tensor, "2 e"]) -> int | None:
    """Return the row by which edges are sorted, ties by the other row; `None` if by neither."""
    for row in (0, 1):
        key = _key(edge_index, row)
        if (key[1:] >= key[:-1]).all():
            return row
    return None


def sorted_by(
    row: int | None, edge_index: Int[Tensor, "2 e"], *per_edge: Shaped[Tensor, "e ..."] | None
) -> tuple[Any, ...]:
    """Return edges sorted by a row (`None`: as they are), ties by the other, and their values."""
    if row is None:
        return edge_index, *per_edge

    def compute() -> tuple[Tensor, Tensor]:
        order = _key(edge_index, row).argsort(stable=True)
        return edge_index[:, order], order

    edges, order = SORTED.kept(edge_index, row, compute)
    return edges, *(None if values is None else values[order] for values in per_edge)


def _key(edge_index: Tensor, row: int) -> Tensor:
    return (edge_index[row] << 32) + edge_index[1 - row]


@dataclass(frozen=True)
class Traits:
    """What a model does, as observed on the graph that it was probed on."""

    in_package: bool = False  # whether only layers of this package, which tests cover, see edges
    writes_in_place: bool = False  # whether it writes into the tensors that it receives
    probabilities: bool = False  # whether it returns probabilities instead of logits
    change: float | None = (
        None  # share of nodes whose class differs between passes; `None` if none do
    )
    reads_edges: bool | None = None  # whether its output depends on edges; `None` if not tried
    row: int | None = None  # row of the edges by which it receives them sorted

    @property
    def is_random(self) -> bool:
        """Whether two forward passes on the same graph differ."""
        return self.change is not None


@dataclass
class Passes:
    """Forward passes of a victim, in all of its forms."""

    count: int = 0  # each draw of a model that samples counts
    # Sees features, edges, edge weights if any, and logits of each pass.
    watch: Callable[[AnyFeatures, Tensor, Tensor | None, Tensor], None] | None = None

    @contextmanager
    def watched(
        self, watch: Callable[[AnyFeatures, Tensor, Tensor | None, Tensor], None]
    ) -> Iterator[None]:
        """Call a function after every pass within the context."""
        before, self.watch = self.watch, watch
        try:
            yield
        finally:
            self.watch = before


class Victim:
    """A trained model as attacks and tests call it: in eval mode, frozen, on one device.

    Within its context, the model is in eval mode and its parameters need no gradient. A call
    returns logits: it sorts the edges as the clean graph's are sorted, copies what a model would
    write into, weights the messages of layers that take no edge weights, takes the logarithm of
    probabilities, averages draws, and counts the passes.

    Args:
        model: A module or function of (x, edge_index[, edge_weight]).
        x: Features of the clean graph, on the model's device.
        edge_index: Its edges.
        traits: What `probe` has observed; by default, nothing is odd.
        draws: Passes that are averaged, at least 1; more for a model that samples.
        passes: Counter of the passes, shared by all forms of a model.

    Examples:
        >>> import torch
        >>> from robust_diffusion.models import GCN
        >>> from robust_diffusion.models.victim import Victim
        >>> x, edge_index = torch.rand(3, 5), torch.tensor([[0, 1], [1, 0]])
        >>> with Victim.probe(GCN(5, 8, out_channels=3), x, edge_index) as victim:
        ...     victim(x, edge_index, torch.ones(2)).shape
        torch.Size([3, 3])
        >>> victim.edge_gradient
        'exact'
    """

    def __init__(
        self,
        model: Callable[..., Tensor],
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
        traits: Traits | None = None,
        *,
        draws: int = 1,
        passes: Passes | None = None,
    ) -> None:
        self.model = model
        self.x, self.edge_index = x, edge_index
        if traits is None:
            in_package = _in_package(model)
            # Sorted edges would change the rounding of the package's models.
            traits = Traits(in_package, row=None if in_package else sorted_row(edge_index))
        self.traits = traits
        self.draws = draws
        self.passes = passes or Passes()
        self._open: list[ExitStack] = []
        self._clean: Tensor | None = None
        self._predicted: Any = WeakIdKeyDictionary()

    @classmethod
    def probe(
        cls,
        model: object,
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
        num_classes: int = 2,
        *,
        name: str = "model",
        grows: bool = True,
        finite: bool = True,
    ) -> "Victim":
        """Try a model on a graph, in at most seven passes; neither is changed.

        The model must be a module that does not cache a graph, accepts (x, edge_index), and returns
        logits for each node and class.

        Args:
            model: The model, trained.
            x: Features, on the model's device.
            edge_index: Edges.
            num_classes: Number of classes that it has to tell apart.
            name: Name of the model in messages.
            grows: Whether it must also accept graphs of more nodes.
            finite: Whether logits that are not finite are an error.

        Raises:
            ConfigError: The model does not fit the graph.
        """
        if not isinstance(model, nn.Module):
            kind = "class" if isinstance(model, type) else type(model).__name__
            raise ConfigError(f"{name}: is a {kind}; give an nn.Module, built and trained")
        _check_layers(model, name)
        victim = cls(model, x, edge_index)
        with victim:
            victim._probe(name, num_classes, grows=grows, finite=finite)
        return victim

    def _probe(self, name: str, num_classes: int, *, grows: bool, finite: bool) -> None:
        model, x, edge_index = self.model, self.x, self.edge_index
        n, kind = x.size(0), type(model).__name__
        wrong = f"{name}: {kind} does not take this graph"
        logits, writes = self._tried_on_copies(wrong)
        again = self._tried(x.clone(), edge_index.clone(), wrong, seed=0)
        if logits.size(1) < num_classes:
            raise ConfigError(
                f"{name}: {kind} tells {logits.size(1)} classes apart, and the labels are "
                f"0..{num_classes - 1}"
            )
        if logits.size(1) < 2:
            raise ConfigError(f"{name}: expected two logits of each node or more, got 1 of {kind}")
        if finite and not torch.isfinite(logits).all():
            raise ConfigError(f"{name}: the logits of {kind} are not finite")
        row_sums = logits.sum(1)
        differs = not torch.equal(logits.nan_to_num(), again.nan_to_num())
        self.traits = replace(
            self.traits,
            writes_in_place=writes,
            probabilities=bool(
                (logits >= 0).all()
                and torch.allclose(row_sums, torch.ones_like(row_sums), atol=1e-3)
            ),
            change=float((logits.argmax(1) != again.argmax(1)).float().mean()) if differs else None,
        )
        self._clean = _as_logits(logits, self.traits)
        if self.traits.in_package:
            return
        if grows:
            new = edge_index.new_tensor([[n, 0], [0, n]])
            larger = torch.cat([x, x[:1]]), torch.cat([edge_index, new], 1)
            self._tried(*larger, f"{name}: {kind} takes this graph, but none of one more node")
        reads = self._reads_edges(logits)
        if not reads and self._keeps_a_graph(logits):
            raise ConfigError(
                f"{name}: {kind} keeps a graph of its own: its logits are the same on other "
                "edges, but depend on other nodes; let it use the edge_index of each call"
            )
        self.traits = replace(self.traits, reads_edges=reads)

    def __enter__(self) -> "Victim":
        """Freeze the model."""
        stack = ExitStack()
        stack.enter_context(frozen(self.model))
        self._open.append(stack)
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the model's mode, its buffers, and which parameters need a gradient."""
        self._open.pop().close()

    def __call__(
        self,
        x: AnyFeatures,
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Return the logits of every node; edge weights are 1 by default."""
        passes = [self._once(x, edge_index, edge_weight) for _ in range(self.draws)]
        return passes[0] if self.draws == 1 else torch.stack(passes).mean(0)

    def _once(self, x: AnyFeatures, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        takes_weights = edge_weight is not None and self.takes_weights
        given = x, edge_index, edge_weight
        logits = _called(self.model, self.traits, *given, takes_weights=takes_weights)
        self.passes.count += 1
        if self.passes.watch is not None:
            self.passes.watch(*given, logits)
        return logits

    def on_copies(self) -> nn.Module:
        """Return the model, or one that calls it on copies if it writes into its inputs."""
        with self:
            wrong = f"model: {type(self.model).__name__} does not take this graph"
            if self.traits.in_package or not self._tried_on_copies(wrong)[1]:
                return self.module
        traits = Traits(writes_in_place=True)
        return _AsModule(self.module, traits, takes_weights=_takes_three(self.model))

    @property
    def forwards(self) -> int:
        """Forward passes so far, of all forms of the model."""
        return self.passes.count

    @property
    def module(self) -> nn.Module:
        """The model, which is a module unless a function was attacked."""
        assert isinstance(self.model, nn.Module)
        return self.model

    def as_module(self) -> nn.Module:
        """Return the model as a module that is called with logits, sorted edges and weights."""
        if self.traits.in_package:
            return self.module
        return _AsModule(self.module, self.traits, takes_weights=self.takes_weights)

    @cached_property
    def weights(self) -> str:
        """Hash of the model's weights and buffers."""
        return state_hash(self.model.state_dict()) if isinstance(self.model, nn.Module) else ""

    def has_weights_of(self, other: "Victim") -> bool:
        """Return whether both have the same weights; without any, they must be the same object."""
        if not list(self.module.parameters()):
            return self.model is other.model
        return self.weights == other.weights

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return self.x.device

    def predict(self, graph: Any, seed: int = 0) -> Float[Tensor, "m c"]:
        """Return the logits of all nodes of a graph (`Data` or `PerturbedGraph`), on the CPU.

        The seed is for a model that samples. The logits are kept as long as the graph exists, which
        must not change.
        """
        known: dict[int, Tensor] = self._predicted.setdefault(graph, {})
        if seed not in known:
            known[seed] = self._predict(graph, seed)
        return known[seed]

    def _predict(self, graph: Any, seed: int) -> Tensor:
        x, edges = graph.x.to(self.device), graph.edge_index.to(self.device)
        versions = x._version, edges._version
        with self, torch.no_grad(), seeded(seed):
            logits = self(x, edges)
        if versions != (x._version, edges._version):
            raise ConfigError(
                f"model: {type(self.model).__name__} writes into the features or edges of some "
                "calls alone; let its forward work on a copy"
            )
        return logits.cpu()

    @property
    def clean_logits(self) -> Float[Tensor, "n c"]:
        """Logits of every node of the clean graph, computed once.

        Raises:
            AttackError: They are not finite, or the model does not take the graph.
        """
        if self._clean is None:
            self._clean = self._first_logits()
        if not torch.isfinite(self._clean).all():
            raise AttackError(
                "the model's logits on the clean graph are not finite; train it again"
            )
        return self._clean

    def _first_logits(self) -> Tensor:
        try:
            with torch.no_grad():
                return self(self.x, self.edge_index)
        except RobustDiffusionError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            if is_out_of_memory(error):
                raise
            raise AttackError(
                f"the model does not take a graph of {self.x.size(1)} features per node "
                f"({_reason(error)}); attack one that was trained on this graph"
            ) from error

    @cached_property
    def class_means(self) -> Float[Tensor, "c f"]:
        """Mean features of each predicted class; those of all nodes for an empty class."""
        predicted = self.clean_logits.argmax(1)
        inside = (predicted == c for c in range(self.clean_logits.size(1)))
        return torch.stack([(self.x[mask] if mask.any() else self.x).mean(0) for mask in inside])

    def clean_predictions(self, seed: int = 0) -> Float[Tensor, "n c"]:
        """Return the logits of the clean graph, on the CPU; with a seed if the model samples."""
        if self._clean is None or self.traits.is_random:
            logits = self._predict(Data(x=self.x, edge_index=self.edge_index), seed)
            if self.traits.is_random:
                return logits
            self._clean = logits.to(self.device)
        return self._clean.cpu()

    def adaptive(self) -> "Victim":
        """Return the form that an attack with knowledge of a defence differentiates.

        Each module declares its form in `make_adaptive`. A model that samples is averaged over
        draws, so that the gradient estimates that of the expectation.

        Reference: expectation over transformation, Athalye et al. 2018, arXiv:1802.00420.

        Returns:
            The victim itself, if that is its adaptive form.
        """
        form = adaptive_form(self.model) if isinstance(self.model, nn.Module) else self.model
        draws = DRAWS if self.traits.is_random else 1
        if form is self.model and draws == self.draws:
            return self
        return self.form(form, draws=draws)

    def averaged(self) -> "Victim":
        """Return the mean over draws if the model samples, else the victim itself."""
        return self.form(self.model, draws=DRAWS) if self.traits.is_random else self

    def form(self, model: Callable[..., Tensor], *, draws: int = 1) -> "Victim":
        """Return a victim of another form of the model, whose passes count as this one's."""
        return Victim(model, self.x, self.edge_index, self.traits, draws=draws, passes=self.passes)

    @cached_property
    def finer(self) -> "Victim | None":
        """The same network with a finer solver; `None` if it solves no equation."""
        if not isinstance(self.model, nn.Module):
            return None
        finer = with_solver(self.model, FINER[0], refine=FINER[1])
        return None if finer is None else self.form(finer)

    def appending(self, x: Float[Tensor, "m f"]) -> Callable[[Tensor], AnyFeatures]:
        """Return a function that appends rows to features that stay fixed.

        The first layers of the fixed rows are computed once.
        """
        rows = partial(InjectedRows, x, {})
        if takes_features(self.model):
            return rows
        # Dense products are fast elsewhere.
        if x.device.type == "cpu" and not self.traits.writes_in_place and _is_of_pyg(self.model):
            return lambda free: InjectedTensor(rows(free))
        return lambda free: torch.cat([x, free])

    @cached_property
    def with_rows(self) -> Callable[[Tensor], AnyFeatures]:
        """Append rows to the clean features; see `appending`."""
        return self.appending(self.x)

    def propagator(self, targets: Int[Tensor, " t"]) -> Propagator | None:
        """Return a fast propagation over the clean graph with injected nodes, if the model has one.

        Its logits are those of the model, which the first call checks.
        """
        build = getattr(self.model, "propagator", None)
        if not (self.traits.in_package and build and self.draws == 1):
            return None
        with torch.no_grad():
            fast = build(self.x, self.edge_index, targets)
        if fast is None:
            return None
        empty = targets.new_empty(2, 0)
        none = torch.zeros(0, targets.numel(), dtype=torch.bool)
        alike = torch.allclose(
            fast(fast.predictions(self.x[:0]), none, empty),
            self.clean_logits[targets],
            rtol=1e-3,
            atol=1e-3,
        )
        return fast if alike else None

    @cached_property
    def edge_gradient(self) -> EdgeGradient:
        """Gradient with respect to edge weights: `exact`, `rough` or `none`.

        It is `rough` if new edges of weight 0 change the logits, as in attention, which is
        normalised over all edges; the gradient of absent edges is then that of another graph.
        """
        if not (self.takes_weights or self._takes_masks):
            return "none"
        return "exact" if self.traits.in_package or self._drops_edges_of_weight_0() else "rough"

    def check_edge_gradient(self) -> None:
        """Raise a `GradientError` if the model has no gradient with respect to edge weights."""
        if self.edge_gradient == "none":
            raise GradientError.missing("edge weights")

    @cached_property
    def takes_weights(self) -> bool:
        """True if the third argument of the model is an edge weight.

        Weights of 1 must leave the logits as they are. A model that ignores its third argument
        takes no weights if a mask on its messages does more; see `weighted_edges`.
        """
        inner = getattr(self.model, "model", None)
        if not _takes_three(self.model):
            return False
        if self.traits.in_package:
            return not isinstance(inner, nn.Module) or _takes_three(inner)
        model: Any = self.model
        slope = self._slope_by(lambda x, edges, ones: model(x, edges, ones))
        return slope is not None and (slope or not self._takes_masks)

    @cached_property
    def _takes_masks(self) -> bool:
        """True if a mask of ones on the messages keeps the logits and has a gradient."""
        model = self.model
        if not isinstance(model, nn.Module):
            return False

        def masked(x: Tensor, edges: Tensor, ones: Tensor) -> Tensor:
            with weighted_edges(model, edges, ones):
                return model(x, edges)  # type: ignore[no-any-return]

        return bool(self._slope_by(masked))

    def _slope_by(self, weighted: Callable[[Tensor, Tensor, Tensor], Tensor]) -> bool | None:
        """Return whether autograd sees the weights; `None` if weights of 1 change the logits."""
        ones = self.x.new_ones(self.edge_index.size(1)).requires_grad_()
        try:
            # Seeded, so that a model that samples draws the same both times, and the caller's
            # random state stays as it is.
            with torch.no_grad(), seeded(0):
                plain = self.model(*_copies(self.traits, self.x, self.edge_index))
            with torch.enable_grad(), seeded(0):
                x, edges = _copies(self.traits, self.x, self.edge_index)
                logits = weighted(x, edges, ones)
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

    def _drops_edges_of_weight_0(self) -> bool:
        n, there = self.x.size(0), self.edge_index
        lower = torch.arange(n // 2, device=there.device)
        new = torch.stack([lower, lower + n // 2])
        new = new[:, ~torch.isin(new[0] * n + new[1], there[0] * n + there[1])]
        edges = torch.cat([there, new, new.flip(0)], 1)
        weight = self.x.new_zeros(edges.size(1))
        weight[: there.size(1)] = 1
        with torch.no_grad():
            with seeded(0):
                plain = self(self.x, there)
            with seeded(0):
                weighed = self(self.x, edges, weight)
        return torch.allclose(weighed, plain, rtol=1e-3, atol=1e-4)

    @cached_property
    def reads_edges(self) -> bool:
        """Whether the logits depend on the edges; true for a graph without edges."""
        if self.traits.reads_edges is not None:
            return self.traits.reads_edges
        wrong = f"model: {type(self.model).__name__} does not take this graph"
        return self._reads_edges(self._tried(self.x.clone(), self.edge_index.clone(), wrong))

    def _tried_on_copies(self, wrong: str) -> tuple[Tensor, bool]:
        """Return the model's output, and whether it writes into what it is passed."""
        # As they are, since a sorted copy would hide that the model writes into its edges.
        x, edge_index = copies(self.x, self.edge_index)
        logits = self._tried(x, edge_index, wrong, row=None)
        return logits, not (torch.equal(x, self.x) and torch.equal(edge_index, self.edge_index))

    def _reads_edges(self, logits: Tensor) -> bool:
        """Try the same number of edges between other nodes, and fewer edges.

        The former may be equal to the graph's.
        """
        x, edge_index = self.x, self.edge_index
        others = [
            (edge_index + 1) % x.size(0),
            edge_index[:, (edge_index != edge_index[0, :1]).all(0)],
        ]
        wrong = f"model: {type(self.model).__name__} does not take this graph"
        return not edge_index.numel() or any(
            not torch.equal(self._tried(x.clone(), edges, wrong), logits) for edges in others
        )

    def _keeps_a_graph(self, logits: Tensor) -> bool:
        """Return whether a model seems to use a stored graph.

        Its logits then depend on other nodes, or on no features, and also on the order of the
        nodes. A norm over all nodes depends on other nodes as well, but not on their order.
        """
        x, edge_index = self.x, self.edge_index
        other = x.clone()
        other[::2] = x.roll(1, 0)[::2]
        changed = (self._tried(other, edge_index.clone(), "model") != logits).any(1)
        is_constant = bool((logits == logits[:1]).all())
        if not changed[1::2].any() and (changed.any() or is_constant):
            return False
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(x.device)
        relabelled = self._tried(x[order], order.argsort()[edge_index], "model")
        largest = float(logits.abs().max())
        return not torch.allclose(relabelled, logits[order], rtol=1e-3, atol=1e-4 * largest)

    def check_dropped_edges(self, raw: Int[Tensor, "2 g"]) -> None:
        """Reject a model whose logits change if self-loops and repeated edges are dropped."""
        if raw.size(1) == self.edge_index.size(1):
            return
        kind = type(self.model).__name__
        with self:
            before, after = (
                self._tried(self.x.clone(), e.clone(), f"model: {kind} does not take this graph")
                for e in (raw, self.edge_index)
            )
        if not torch.allclose(before, after, rtol=1e-3, atol=1e-4):
            raise ConfigError(
                f"data.edge_index: attacks drop its {raw.size(1) - self.edge_index.size(1)} "
                f"self-loops and repeated edges, and the logits of {kind} depend on them; train on "
                "a graph without (torch_geometric.utils: remove_self_loops, coalesce), and add "
                "self-loops in forward"
            )

    def _tried(
        self,
        x: Tensor,
        edge_index: Tensor,
        wrong: str,
        *,
        seed: int = PROBING_SEED,
        row: int | Literal["own"] | None = "own",
    ) -> Float[Tensor, "n c"]:
        """Return the model's output on tensors that it may modify; an error starts with `wrong`."""
        n, place = x.size(0), ""
        (edge_index,) = sorted_by(self.traits.row if row == "own" else row, edge_index)
        try:
            with torch.no_grad(), seeded(seed):
                logits = self.model(x, edge_index)
        except RobustDiffusionError:
            raise
        except Exception as error:  # a custom forward may raise anything
            if is_out_of_memory(error):
                raise
            # Find the innermost line of user code, if any.
            libraries = f"{Path(__file__).parents[1]}{os.sep}", "site-packages", "<frozen"
            for frame in extract_tb(error.__traceback__):
                if not any(part in frame.filename for part in libraries):
                    place = f"; {os.path.relpath(frame.filename)}:{frame.lineno}"
            raise ConfigError(
                f"{wrong} of {n} nodes and {x.size(1)} features per node ({_reason(error)}"
                f"{place}); it must map (x, edge_index) to logits"
            ) from error
        return _checked(logits, n, wrong)


class _AsModule(nn.Module):
    """Module that calls a model as a victim does, for code that needs a module."""

    normalizes_by_degree = False

    def __init__(self, model: nn.Module, traits: Traits, *, takes_weights: bool) -> None:
        super().__init__()
        self.model, self.traits, self.takes_weights = model, traits, takes_weights

    @property
    def class_name(self) -> str:
        """Name of the model's class, for messages."""
        return type(self.model).__name__

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None
    ) -> Float[Tensor, "n c"]:
        """Return the logits of every node."""
        given = x, edge_index, edge_weight
        return _called(self.model, self.traits, *given, takes_weights=self.takes_weights)


def _called(
    model: Any,
    traits: Traits,
    x: AnyFeatures,
    edge_index: Tensor,
    edge_weight: Tensor | None,
    *,
    takes_weights: bool,
) -> Tensor:
    """Call a model with what it needs; return logits."""
    edges, weight = sorted_by(traits.row, edge_index, edge_weight)
    if isinstance(x, Tensor) and x.numel() > LARGE and not x.requires_grad:
        x = InjectedRows(x, {}, x[:0]) if takes_features(model) else x
    x, edges, weight = _copies(traits, x, edges, weight)
    if weight is None:
        logits = model(x, edges)
    elif takes_weights:
        logits = model(x, edges, weight)
    else:
        with weighted_edges(model, edges, weight):
            logits = model(x, edges)
    wrong = f"model: {type(model).__name__} does not return logits on every call"
    return _as_logits(_checked(logits, x.size(0), wrong), traits)


def _copies(traits: Traits, *tensors: Any) -> tuple[Any, ...]:
    """Return copies of the tensors that a model would write into."""
    return copies(*tensors) if traits.writes_in_place else tensors


def copies(*tensors: Any) -> tuple[Any, ...]:
    """Return copies of tensors, into which a model may write, and anything else as it is."""
    return tuple(a.clone() if isinstance(a, Tensor) else a for a in tensors)


def _as_logits(output: Tensor, traits: Traits) -> Tensor:
    if not traits.probabilities:
        return output
    return output.clamp_min(torch.finfo(output.dtype).tiny).log()


def _in_package(model: object) -> bool:
    """Return whether only layers of this package receive edges, and none is compiled.

    Tests cover these layers: they sort edges, and drop those of weight 0.
    """
    return _consists_of(model, (*OF_THIS_PACKAGE, *WITHOUT_EDGES))


def _is_of_pyg(model: object) -> bool:
    """Return whether only PyG's and PyTorch's layers read features, none compiled, without hooks.

    Any other code might change its weights in a pass, or differentiate with respect to features.
    """
    return _consists_of(model, OF_PYG) and not any(
        part._forward_hooks or part._forward_pre_hooks
        for part in model.modules()  # type: ignore[attr-defined]
    )


def _consists_of(model: object, packages: tuple[str, ...]) -> bool:
    """Return whether a model and all of its parts are of these packages, and none is compiled."""
    return isinstance(model, nn.Module) and all(
        type(part).__module__.startswith(packages)
        and getattr(part, "_compiled_call_impl", None) is None
        for part in model.modules()
    )


def _takes_three(model: Callable[..., Tensor]) -> bool:
    """Return whether a model can be called with three positional arguments."""
    function = model.forward if isinstance(model, nn.Module) else model
    try:
        inspect.signature(function).bind(None, None, None)
    except TypeError:
        return False
    return True


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _check_layers(model: nn.Module, name: str) -> None:
    for part in model.modules():
        if getattr(part, "cached", False) is True:
            raise ConfigError(
                f"{name}: {type(part).__name__} remembers the first graph that it sees, and would "
                "not see any other; build it with cached=False"
            )
    if any(map(is_lazy, model.parameters())):
        kind = type(model).__name__
        raise ConfigError(f"{name}: expected a trained model, got lazy layers in {kind}; train it")


def _checked(logits: Any, n: int, wrong: str) -> Tensor:
    """Return a model's output; raise a `ConfigError` unless it has a row of logits per node."""
    if not isinstance(logits, Tensor):
        raise ConfigError(f"{wrong}: it returns a {type(logits).__name__}; return logits alone")
    if logits.ndim != 2 or logits.size(0) != n or not logits.is_floating_point():
        raise ConfigError(
            f"{wrong}: it returns shape {tuple(logits.shape)} of {logits.dtype} for {n} nodes; it "
            "must return one row of logits per node"
        )
    return logits


@contextmanager
def weighted_edges(
    model: nn.Module, edge_index: Int[Tensor, "2 e"], weight: Float[Tensor, " e"]
) -> Iterator[None]:
    """Weight the edges in every layer of PyTorch Geometric within the context.

    A layer with an argument `edge_weight` receives the weights, so that its degrees do not count an
    edge of weight 0. The messages of all other layers are multiplied by the weights. A mean divides
    by the sum of the weights.
    """
    with ExitStack() as stack:
        for layer in model.modules():
            if not isinstance(layer, MessagePassing):
                continue
            if "edge_weight" in inspect.signature(layer.forward).parameters:
                passing = partial(_pass_weight, edge_index, weight)
                stack.enter_context(layer.register_forward_pre_hook(passing, with_kwargs=True))
            else:
                set_masks(layer, weight, edge_index, apply_sigmoid=False)
                stack.callback(clear_masks, layer)
            if isinstance(layer.aggr_module, MeanAggregation):
                mean = partial(_divide_by_weight, edge_index, weight)
                stack.enter_context(layer.aggr_module.register_forward_hook(mean, with_kwargs=True))
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
    # At least 1, so that the gradient of a node's first edge is that of adding it.
    shape = [1] * mean.ndim
    shape[kwargs["dim"]] = -1
    return mean * (count / total.clamp_min(1)).view(shape)


def _with_loops(edge_index: Tensor, weight: Tensor, count: int) -> Tensor:
    """Return the weights of a layer's edges, with 1 for the self-loops that the layer adds."""
    if weight.size(0) == count:
        return weight
    without_loops = weight[edge_index[0] != edge_index[1]]
    return torch.cat([without_loops, without_loops.new_ones(count - without_loops.size(0))])
