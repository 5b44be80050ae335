"""Passes of a model over one graph as CUDA graphs: one launch in place of hundreds."""

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

log = logging.getLogger(__name__)

_Pass = Callable[[], Tensor]

RELATIVE = 1e-3
"""Most that a replay may differ from a plain pass, relative to the largest value of a tensor."""


class CapturedPasses:
    """A model whose passes over a graph are recorded once and then launched as a whole.

    An epoch on a graph as small as Cora waits for its launches, not for the GPU. A pass is recorded
    for each graph and mode if nothing in it waits for the GPU, and if two replays change logits,
    gradients and buffers as two plain passes do: a model that draws on the host, counts there or
    branches on its features runs as it is written. So does, from then on, one whose attributes a
    callback has changed since the recording. The trials restore buffers, random numbers, and the
    numbers and texts that modules keep as attributes, but no other state on the host.

    Args:
        model: On a CUDA device, in single precision without autocast. Its parameters may change
            in place only.

    Reference: `torch.cuda.make_graphed_callables` in PyTorch's documentation of CUDA graphs.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        # A view keeps its tensors, so that no others can come to have their ids.
        self._passes: dict[tuple[int, ...], _View] = {}
        # With the model's attributes at the recording.
        self._recorded: dict[tuple[int, ...], tuple[_Pass, _Host]] = {}

    def __call__(self, x: Tensor, edge_index: Tensor, **options: Tensor) -> Tensor:
        """Logits of every node, n x C, which the next call of the same kind overwrites."""
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
            log.debug("a pass as a CUDA graph: dropped, as attributes of the model have changed")
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
            trial(plain)  # looks at the graph
            keeps_attributes = state.host.is_unchanged()
            with _waits_refused():
                expected = trial(plain)
            with self._recording():
                captured = _with_backward(view()) if differentiable else _forward(plain)
            if keeps_attributes and all(map(_close, trial(captured), expected)):
                log.debug("a pass as a CUDA graph: %s", "training" if differentiable else "test")
                return captured
        except Exception as error:  # what a plain pass raises, it will raise again
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
        finally:
            state.restore()
        log.debug("training without CUDA graphs: %s", reason)
        return None

    @contextmanager
    def _recording(self) -> Iterator[None]:
        """Without garbage collection, which may free what no recording allows to be freed.

        A recording that fails leaves the generator unable to draw and its own stream the current
        one. The stream is put back, and the generator gets a new state, which passes recorded
        before do not draw from: they are dropped.
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
    """Numbers and texts that modules keep as attributes, and whether parameters learn."""

    def __init__(self, model: nn.Module) -> None:
        self._values = [
            (vars(module), name, value)
            for module in model.modules()
            for name, value in vars(module).items()
            if isinstance(value, bool | int | float | str)
        ]
        self._learns = [(parameter, parameter.requires_grad) for parameter in model.parameters()]

    def is_unchanged(self) -> bool:
        return all(
            attributes.get(name) == value for attributes, name, value in self._values
        ) and all(parameter.requires_grad == learns for parameter, learns in self._learns)

    def restore(self) -> None:
        for attributes, name, value in self._values:
            attributes[name] = value


class _State:
    """What a pass changes besides its result: buffers, random numbers and attributes."""

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
        """Logits and buffers after each of two passes from this state."""
        self.restore()
        logits = [run().clone() for _ in range(2)]
        return [*logits, *[buffer.clone() for buffer in self._buffers]]

    def two_with_gradients(self, run: _Pass) -> list[Tensor]:
        """The same, and the gradients of a sum of squares."""
        self.restore()
        found = []
        for _ in range(2):
            logits = run()
            loss = logits.square().mean()
            gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
            values = [logits.detach(), *[g for g in gradients if g is not None], *self._buffers]
            found += [value.clone() for value in values]
        return found


@contextmanager
def _waits_refused() -> Iterator[None]:
    """Raise where the host would wait for the GPU, which nothing that is recorded may do."""
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


def _close(found: Tensor, expected: Tensor) -> bool:
    if not expected.is_floating_point():
        return torch.equal(found, expected)
    largest = expected.abs().max() if expected.numel() else torch.zeros(())
    return torch.allclose(found, expected, 0.0, RELATIVE * largest.item() + 1e-30, equal_nan=True)
