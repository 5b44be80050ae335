"""Checks of any model, and contexts that sort or weight its edges, freeze it, and restore it."""

import copy
import inspect
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from threading import RLock
from traceback import extract_tb
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import MeanAggregation

from robust_diffusion.errors import ConfigError, RobustDiffusionError, is_out_of_memory
from robust_diffusion.system.tensor_hashes import ByTensor

SORTED = ByTensor()
"""Sorted edges and their permutation, by the tensor that is sorted."""


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


def sort_inputs(model: nn.Module, row: int | None) -> RemovableHandle:
    """Sort the edges in every call of a model, until the handle is removed."""
    hook = partial(_sorted_inputs, row)
    return model.register_forward_pre_hook(hook, prepend=True, with_kwargs=True)


def _sorted_inputs(
    row: int | None, _: nn.Module, args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Sort edges and their weights, whether the model is called by position or by name."""
    edges = args[1] if len(args) > 1 else named["edge_index"]
    weights = {name: named[name] for name in named.keys() - {"x", "edge_index", "degree"}}
    edges, *values = sorted_by(row, edges, *args[2:], *weights.values())
    by_name = dict(zip(weights, values[len(args[2:]) :], strict=True))
    if len(args) > 1:
        return (args[0], edges, *values[: len(args) - 2]), by_name
    return args, {**named, "edge_index": edges, **by_name}


def _key(edge_index: Tensor, row: int) -> Tensor:
    return (edge_index[row] << 32) + edge_index[1 - row]


_TURN = RLock()

TRIAL_SEED = 2**32 - 1
"""Seed of the passes that check a model; evaluations use other seeds, so that a model that samples
is detected by its different logits."""

M = TypeVar("M", bound=nn.Module)


@contextmanager
def own_context() -> Iterator[None]:
    """Enable gradients within the context, even if the caller has switched them off.

    Threads take turns, since a model's train mode and PyTorch's random state are shared by the
    whole process.
    """
    with _TURN, torch.inference_mode(mode=False), torch.enable_grad():
        yield


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generators, of all devices, and restore them afterwards."""
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


@contextmanager
def frozen(model: object) -> Iterator[None]:
    """Put a module in eval mode, its parameters without gradient, and restore both afterwards."""
    if not isinstance(model, nn.Module):
        yield
        return
    modes = [(module, module.training) for module in model.modules()]
    gradients = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    model.eval()
    model.requires_grad_(requires_grad=False)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter, requires_grad in gradients:
            parameter.requires_grad_(requires_grad)


WITHOUT_EDGES = ("torch.nn.utils.", "torch_geometric.nn.aggr.", "torch_geometric.nn.dense.")
"""Packages of layers that receive no edges, or only from other layers that call them."""


@contextmanager
def buffers_restored(model: nn.Module) -> Iterator[None]:
    """Restore the buffers afterwards, which a forward may write to even in eval mode."""
    buffers = [
        (module._buffers, name, buffer, buffer.clone())
        for module in ([] if is_of_this_package(model) else model.modules())
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    try:
        yield
    finally:
        for holder, name, buffer, value in buffers:
            holder[name] = buffer
            if not torch.equal(buffer, value):
                buffer.detach().copy_(value)


def copy_of(model: M) -> M:
    """Return a deep copy; objects that cannot be copied, such as locks, are shared.

    Tensors that autograd has computed, such as features that a layer caches, are detached.
    """
    with suppress(Exception):  # copying user-defined attributes may raise anything
        return copy.deepcopy(model)
    shared: dict[int, Any] = {}
    for value in [v for part in model.modules() for k, v in vars(part).items() if k != "_modules"]:
        try:
            copy.deepcopy(value, dict(shared))
        except Exception:
            is_tensor = isinstance(value, Tensor)
            shared[id(value)] = value.detach().clone() if is_tensor else value
    return copy.deepcopy(model, shared)


def is_of_this_package(model: object, further: tuple[str, ...] = ()) -> bool:
    """Return whether all layers of a model are from this package or PyTorch, and none is compiled.

    Layers from the packages in `further` are accepted as well.
    """
    parts = model.modules() if isinstance(model, nn.Module) else [model]
    return all(
        type(part).__module__.startswith(("robust_diffusion.", "torch.nn.modules.", *further))
        and getattr(part, "_compiled_call_impl", None) is None
        for part in parts
    )


def has_own_layers(model: object) -> bool:
    """Return whether only layers of this package receive edges in a model.

    These layers sort edges, and drop edges of weight 0.
    """
    return is_of_this_package(model, WITHOUT_EDGES)


def is_random(model: nn.Module) -> bool:
    """Return whether a module of a model draws in eval mode, by its attribute `samples`."""
    return any(getattr(module, "samples", False) is True for module in model.modules())


def device_of(model: object) -> torch.device:
    """Return the device of a module's first tensor; the CPU if it has none."""
    tensors = chain(model.parameters(), model.buffers()) if isinstance(model, nn.Module) else ()
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def dtype_of(model: object, default: torch.dtype) -> torch.dtype:
    """Return the data type of a module's first floating-point parameter, used for features."""
    parameters = model.parameters() if isinstance(model, nn.Module) else ()
    return next((p.dtype for p in parameters if p.dtype.is_floating_point), default)


@dataclass(frozen=True, eq=False)
class TriedModel:
    """A model that was tried on a graph, and its observed behaviour."""

    model: nn.Module  # as it was passed
    logits: Float[Tensor, "n c"]  # its output on the graph, in eval mode
    writes_in_place: bool = False  # whether it modifies the tensors that it receives
    gives_probabilities: bool = False  # whether it returns probabilities instead of logits
    sees_edges: bool | None = None  # whether its output depends on edges; `None` if not tried
    row: int | None = None  # row of the edges by which its inputs are sorted

    @contextmanager
    def safe_inputs(self) -> Iterator[None]:
        """Sort the model's input edges as in the graph, and copy inputs if it modifies them."""
        with ExitStack() as stack:
            if self.writes_in_place:
                stack.enter_context(self.model.register_forward_pre_hook(_copied, prepend=True))
            if self.row is not None:
                stack.enter_context(sort_inputs(self.model, self.row))
            yield

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Freeze the model, protect its inputs, make its outputs logits; restore it afterwards."""
        with buffers_restored(self.model), frozen(self.model), ExitStack() as stack:
            stack.enter_context(self.safe_inputs())
            if not is_of_this_package(self.model):
                hook = self.model.register_forward_hook(_check_output, with_kwargs=True)
                stack.enter_context(hook)
            if self.gives_probabilities:
                stack.enter_context(self.model.register_forward_hook(_logarithm))
            yield


def _copied(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.clone() if isinstance(a, Tensor) else a for a in args)


def _check_output(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any
) -> None:
    x = args[0] if args else kwargs.get("x")
    if not isinstance(x, Tensor):  # called with custom argument names
        return
    _check_logits(
        output,
        x.size(0),
        f"model: {type(model).__name__} does not return logits on every call",
    )


def _logarithm(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> Tensor:
    return output.clamp_min(torch.finfo(output.dtype).tiny).log()


def check_model(
    model: object,
    x: Float[Tensor, "n f"],
    edge_index: Int[Tensor, "2 e"],
    num_classes: int,
    *,
    name: str = "model",
    grows: bool = True,
) -> TriedModel:
    """Try a model on a graph, and if it `grows`, with one more node; neither is changed.

    The model must be a module that does not cache a graph, accepts (x, edge_index) with any number
    of nodes, and returns finite logits for each node and class.
    """
    if not isinstance(model, nn.Module):
        kind = "class" if isinstance(model, type) else type(model).__name__
        raise ConfigError(f"{name}: is a {kind}; give an nn.Module, built and trained")
    _check_layers(model, name)
    with buffers_restored(model):
        kind = type(model).__name__
        n = x.size(0)
        copies = x.clone(), edge_index.clone()
        logits = _tried(model, *copies, f"{name}: {kind} does not take this graph")
        if logits.size(1) < num_classes:
            raise ConfigError(
                f"{name}: {kind} tells {logits.size(1)} classes apart, and the labels are "
                f"0..{num_classes - 1}"
            )
        if logits.size(1) < 2:
            raise ConfigError(f"{name}: expected two logits of each node or more, got 1 of {kind}")
        if not torch.isfinite(logits).all():
            raise ConfigError(f"{name}: the logits of {kind} are not finite")
        # Sorted edges would change the rounding of the package's models.
        row, sees = None if has_own_layers(model) else sorted_row(edge_index), None
        if not has_own_layers(model):  # models of the package are covered by tests
            with TriedModel(model, logits, row=row).safe_inputs():
                if grows:
                    new = edge_index.new_tensor([[n, 0], [0, n]])
                    larger = torch.cat([x, x[:1]]), torch.cat([edge_index, new], 1)
                    takes = f"{name}: {kind} takes this graph, but none of one more node"
                    _tried(model, *larger, takes)
                sees = sees_edges(model, x, edge_index, logits)
            if not sees and _keeps_a_graph(model, x, edge_index, logits):
                raise ConfigError(
                    f"{name}: {kind} keeps a graph of its own: its logits are the same on other "
                    "edges, but depend on other nodes; let it use the edge_index of each call"
                )
        row_sums = logits.sum(1)
        return TriedModel(
            model=model,
            logits=logits,
            writes_in_place=not (torch.equal(copies[0], x) and torch.equal(copies[1], edge_index)),
            gives_probabilities=bool(
                (logits >= 0).all()
                and torch.allclose(row_sums, torch.ones_like(row_sums), atol=1e-3)
            ),
            sees_edges=sees,
            row=row,
        )


def sees_edges(
    model: nn.Module,
    x: Float[Tensor, "n f"],
    edge_index: Int[Tensor, "2 e"],
    logits: Float[Tensor, "n c"] | None = None,
) -> bool:
    """Return whether a model's logits depend on the edges; true for a graph without edges.

    The model is tried with the same number of edges between other nodes, and with fewer edges,
    since the former may be equal to the graph's. Pass the `logits` of the graph if they are known.
    """
    others = [(edge_index + 1) % x.size(0), edge_index[:, (edge_index != edge_index[0, :1]).all(0)]]
    wrong = f"model: {type(model).__name__} does not take this graph"
    clean = _tried(model, x.clone(), edge_index.clone(), wrong) if logits is None else logits
    return not edge_index.numel() or any(
        not torch.equal(_tried(model, x.clone(), edges, wrong), clean) for edges in others
    )


def check_dropped_edges(
    model: nn.Module, x: Float[Tensor, "n f"], raw: Int[Tensor, "2 g"], edges: Int[Tensor, "2 e"]
) -> None:
    """Reject a model whose logits change if self-loops and repeated edges are dropped."""
    if raw.size(1) == edges.size(1):
        return
    kind = type(model).__name__
    wrong = f"model: {kind} does not take this graph"
    with buffers_restored(model):
        before, after = (_tried(model, x.clone(), e.clone(), wrong) for e in (raw, edges))
    if not torch.allclose(before, after, rtol=1e-3, atol=1e-4):
        raise ConfigError(
            f"data.edge_index: attacks drop its {raw.size(1) - edges.size(1)} self-loops and "
            f"repeated edges, and the logits of {kind} depend on them; train on a graph without "
            "(torch_geometric.utils: remove_self_loops, coalesce), and add self-loops in forward"
        )


def _keeps_a_graph(model: nn.Module, x: Tensor, edge_index: Tensor, logits: Tensor) -> bool:
    """Return whether a model seems to use a stored graph.

    Its logits then depend on other nodes, or on no features, and also on the order of the nodes. A
    norm over all nodes depends on other nodes as well, but not on their order.
    """
    other = x.clone()
    other[::2] = x.roll(1, 0)[::2]
    changed = (_tried(model, other, edge_index.clone(), "model") != logits).any(1)
    is_constant = bool((logits == logits[:1]).all())
    if not changed[1::2].any() and (changed.any() or is_constant):
        return False
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(x.device)
    relabelled = _tried(model, x[order], order.argsort()[edge_index], "model")
    largest = float(logits.abs().max())
    return not torch.allclose(relabelled, logits[order], rtol=1e-3, atol=1e-4 * largest)


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


def _tried(model: nn.Module, x: Tensor, edge_index: Tensor, wrong: str) -> Float[Tensor, "n c"]:
    """Run a model in eval mode on tensors that it may modify; an error starts with `wrong`."""
    n, place = x.size(0), ""
    try:
        with torch.no_grad(), frozen(model), seeded(TRIAL_SEED):
            logits = model(x, edge_index)
    except RobustDiffusionError:
        raise
    except Exception as error:  # a custom forward may raise anything
        if is_out_of_memory(error):
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        # Find the innermost line of user code, if any.
        libraries = f"{Path(__file__).parents[1]}{os.sep}", "site-packages", "<frozen"
        for frame in extract_tb(error.__traceback__):
            if not any(part in frame.filename for part in libraries):
                place = f"; {os.path.relpath(frame.filename)}:{frame.lineno}"
        raise ConfigError(
            f"{wrong} of {n} nodes and {x.size(1)} features per node ({reason}{place}); it "
            "must map (x, edge_index) to logits"
        ) from error
    return _check_logits(logits, n, wrong)


def _check_logits(logits: Any, n: int, wrong: str) -> Tensor:
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
