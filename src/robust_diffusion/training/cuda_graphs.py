"""Passes of a model over one graph as CUDA graphs, with one launch instead of hundreds."""

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import cast

import torch
from torch import Tensor, nn

log = logging.getLogger(__name__)

_Pass = Callable[[], Tensor]

RELATIVE = 1e-3
"""Largest difference of a replay from a plain pass, relative to the largest value of a tensor."""


class CapturedPasses:
    """A model whose passes over a graph are recorded once and then launched as a whole.

    On a graph as small as Cora, the time of an epoch is dominated by kernel launches. A pass is
    recorded for each graph and mode, on two conditions: it has no host sync, and two replays give
    the same logits, gradients and buffers as two plain passes. A model that draws random numbers on
    the host, counts there or branches on its features runs uncaptured. A recording is dropped as
    soon as a callback changes attributes of the model. The trials restore buffers, random states,
    and attributes that are numbers or strings, but no other state on the host.

    Args:
        model: Model on a CUDA device, in single precision without autocast. If a
            parameter or buffer moves to another storage, the recording is dropped.

    Reference: `torch.cuda.make_graphed_callables` in PyTorch's documentation of CUDA graphs.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        # A view keeps its tensors alive, so that their ids stay unique.
        self._passes: dict[tuple[int, ...], _View] = {}
        # Each with the model's attributes at the time of the recording.
        self._recorded: dict[tuple[int, ...], tuple[_Pass, _Host]] = {}

    # The options are those of the model, such as `edge_weight` and `degree`.
    def __call__(self, x: Tensor, edge_index: Tensor, **options: Tensor) -> Tensor:
        """Compute the logits of every node, n x C; the next call of this kind overwrites them."""
        differentiable = self._model.training and torch.is_grad_enabled()
        ids = map(id, (x, edge_index, *options.values()))
        key = (*ids, self._model.training, differentiable)
        view = partial(_View, self._model, x, edge_index, options)
        if key not in self._passes:
            self._passes[key] = view()
            run = self._captured(view, differentiable=differentiable)
            if run is not None:
                self._recorded[key] = run, _Host(self._model)
        if key in self._recorded:
            run, host = self._recorded[key]
            if host.is_unchanged():
                return run()
            log.info("CUDA graphs: dropped a recorded pass, since attributes of the model changed")
            del self._recorded[key]
        logits: Tensor = self._passes[key]()
        return logits

    def _captured(self, view: Callable[[], "_View"], *, differentiable: bool) -> _Pass | None:
        plain, state = view(), _State(self._model)
        trial = state.two_with_gradients if differentiable else state.two
        reason = "a replay differs from a plain pass, or a pass changes attributes of the model"
        if any(module._forward_hooks or module._forward_pre_hooks for module in plain.modules()):
            return None
        try:
            trial(plain)  # the first pass on a graph may need host syncs
            keeps_attributes = state.host.is_unchanged()
            with _waits_refused():
                expected = trial(plain)
            with self._recording():
                captured = _with_backward(view()) if differentiable else _forward(plain)
            if keeps_attributes and all(map(_close, trial(captured), expected)):
                log.debug("a pass as a CUDA graph: %s", "training" if differentiable else "test")
                return captured
        except Exception as error:  # an error of the model is raised again by the plain pass
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
        finally:
            state.restore()
        log.debug("training without CUDA graphs: %s", reason)
        return None

    @contextmanager
    def _recording(self) -> Iterator[None]:
        """Disable garbage collection, which may free objects that a recording must not free.

        A failed recording leaves the generator unusable and its own stream as the current one. This
        restores the stream and gives the generator a new state. Passes recorded earlier do not draw
        from that state, so they are dropped.
        """
        gc.collect()
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            with torch.cuda.stream(torch.cuda.current_stream()):
                yield
        except Exception:
            self._recorded.clear()
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
            generator.graphsafe_set_state(torch.Generator(generator.device))
            raise
        finally:
            if was_enabled:
                gc.enable()


class _View(nn.Module):
    """A model on one graph, without arguments."""

    def __init__(
        self, model: nn.Module, x: Tensor, edge_index: Tensor, options: dict[str, Tensor]
    ) -> None:
        super().__init__()
        self.training = model.training
        self.model = model
        self._given, self._options = (x, edge_index), options

    def forward(self) -> Tensor:
        logits: Tensor = self.model(*self._given, **self._options)
        return logits


class _Host:
    """Snapshot of attributes that are numbers or strings, `requires_grad` flags and storages."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._values = [
            (vars(module), name, value)
            for module in model.modules()
            for name, value in vars(module).items()
            if isinstance(value, bool | int | float | str)
        ]
        self._learns = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
        self._storages = _storages(model)

    def is_unchanged(self) -> bool:
        return (
            all(attributes.get(name) == value for attributes, name, value in self._values)
            and all(parameter.requires_grad == learns for parameter, learns in self._learns)
            and self._storages == _storages(self._model)
        )

    def restore(self) -> None:
        for attributes, name, value in self._values:
            attributes[name] = value


def _storages(model: nn.Module) -> list[int]:
    """Return the addresses that a recording reads; assigning to `.data` changes them."""
    return [tensor.data_ptr() for tensor in chain(model.parameters(), model.buffers())]


class _State:
    """Snapshot of the state that a pass can change: buffers, random states and attributes."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._buffers = [*model.buffers()]
        self._values = [buffer.clone() for buffer in self._buffers]
        self._random = torch.get_rng_state(), torch.cuda.get_rng_state()
        self.host = _Host(model)

    def restore(self) -> None:
        self.host.restore()
        for buffer, value in zip(self._buffers, self._values, strict=True):
            buffer.copy_(value)
        torch.set_rng_state(self._random[0])
        torch.cuda.set_rng_state(self._random[1])

    def two(self, run: _Pass) -> list[Tensor]:
        """Run two passes from this state; return their logits, and the buffers at the end."""
        self.restore()
        logits = [run().clone() for _ in range(2)]
        return [*logits, *[buffer.clone() for buffer in self._buffers]]

    def two_with_gradients(self, run: _Pass) -> list[Tensor]:
        """Run two passes from this state; return the logits, gradients and buffers of each."""
        self.restore()
        results = []
        for _ in range(2):
            logits = run()
            loss = logits.square().mean()
            gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
            values = [logits.detach(), *[g for g in gradients if g is not None], *self._buffers]
            results += [value.clone() for value in values]
        return results


@contextmanager
def _waits_refused() -> Iterator[None]:
    """Raise an error on a host sync, which no recorded pass may have."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _with_backward(view: _View) -> _Pass:
    return cast(_Pass, torch.cuda.make_graphed_callables(view, (), allow_unused_input=True))


def _forward(plain: _View) -> _Pass:
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        plain()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits: Tensor = plain()

    def replay() -> Tensor:
        graph.replay()
        return logits

    return replay


def _close(actual: Tensor, expected: Tensor) -> bool:
    if not expected.is_floating_point():
        return torch.equal(actual, expected)
    largest = expected.abs().max() if expected.numel() else torch.zeros(())
    return torch.allclose(actual, expected, 0.0, RELATIVE * largest.item() + 1e-30, equal_nan=True)
