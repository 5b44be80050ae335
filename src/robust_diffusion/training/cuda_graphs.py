"""Training epochs as one CUDA graph, with one launch instead of hundreds."""

import gc
import logging
import random
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping
from torch import Tensor, nn
from torch_geometric.data import Data

if TYPE_CHECKING:
    from robust_diffusion.training.fit import BestWeights
    from robust_diffusion.training.module import NodeClassification

log = logging.getLogger(__name__)

_Run = Callable[[], object]

DEVICE = "cuda"
"""Type of the devices that record."""

AHEAD = 16
"""Epochs per read of their scores; the host then logs them while the GPU computes the next."""

RELATIVE = 1e-2
"""Largest difference of replayed epochs from plain ones, relative to the largest of a tensor.

A GPU sums in any order, and Adam's first steps are as large for a gradient of rounding errors as
for any other. All gradients are compared as one tensor, since some are nothing but rounding.
"""

PLAIN = {
    "precision": "32-true",
    "num_training_batches": 1,
    "num_val_batches": [1],
    "accumulate_grad_batches": 1,
    "check_val_every_n_epoch": 1,
    "gradient_clip_val": None,
    "max_steps": -1,
    "reload_dataloaders_every_n_epochs": 0,
}
"""Options of Lightning's trainer for which all epochs are alike."""

IN_AN_EPOCH = re.compile(
    "on_(?!test|predict).*(batch|epoch|validation|backward|zero_grad|optimizer_step)"
)
"""Hooks of a callback that run during an epoch, by their names."""


class RecordedEpochs(pl.Callback):
    """Recording of a training epoch as one CUDA graph, and its launches ahead of Lightning.

    On a graph as small as Cora, an epoch is dominated by kernel launches and host syncs. The first
    epoch runs as written. Then training pass, update, validation pass and the copy of the best
    weights are recorded, and each further epoch is one launch. Up to two times `AHEAD` epochs are
    in flight, but none that early stopping could skip. Lightning still runs its loop over all
    epochs, but takes loss and accuracy from what the GPU has written, so that logs, early stopping
    and the best epoch are the same.

    Two replays must give the scores, gradients and buffers of two plain epochs up to `RELATIVE`,
    without a host sync. Models that draw random numbers on the host, count there or branch on their
    features are not recorded, and neither are adversarial training, schedulers, and callbacks that
    take part in an epoch. The recording ends if attributes of the model or the learning rate
    change.

    Args:
        best: Best weights of this training, updated on the device.
        stopping: Early stopping of this training, by its patience alone.
        others: Further callbacks that only read metrics.

    Reference: "Whole-network capture" in PyTorch's documentation of CUDA graphs.
    """

    def __init__(
        self, best: "BestWeights", stopping: EarlyStopping, others: Iterable[pl.Callback] = ()
    ) -> None:
        self._best, self._stopping = best, stopping
        self._known = {self, best, stopping, *others}
        self._batches: dict[str, Data] = {}
        self._replay: _Run | None = None
        self._kept: list[Tensor] = []
        self._launched = 0
        self._in_flight: tuple[Tensor, torch.cuda.Event | None] | None = None
        self._scores: deque[Tensor] = deque()

    def on_train_batch_end(self, *args: Any, **_: Any) -> None:
        """Remember the batch of the first epoch."""
        self._batches.setdefault("train", args[3])

    def on_validation_batch_end(self, *args: Any, **_: Any) -> None:
        """Remember the batch of the first validation."""
        self._batches.setdefault("val", args[3])

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Record before the second epoch; then pass the scores of the next epoch to the module."""
        module: NodeClassification = pl_module  # type: ignore[assignment]
        if trainer.strategy.root_device.type != DEVICE:
            return
        if trainer.current_epoch == 1:
            reason = self._obstacle(trainer, module) or self._record(trainer, module)
            if reason:
                log.info("training without a CUDA graph: %s", reason)
        if self._replay is None:
            return
        if not self._scores:
            unchanged = self._host.is_unchanged()
            if self._in_flight is None and unchanged:
                self._launch(trainer, least=1)
            if self._in_flight is None:
                log.info("CUDA graph: ended, since attributes of the model or rates have changed")
                self.end(module)
                return
            scores, written = self._in_flight
            if written is not None:
                written.synchronize()
            self._scores.extend(scores)
            self._in_flight = None
            if unchanged:
                self._launch(trainer)
        train, val = self._scores.popleft().view(2, 2)
        module.recorded_scores = {"train": tuple(train), "val": tuple(val)}

    def end(self, module: "NodeClassification") -> None:
        """Leave further epochs to Lightning, and take the best epoch from the device."""
        if self._replay is not None:
            self._best.accuracy, self._best.epoch = self._kept[0].item(), int(self._kept[1])
        self._replay, self._in_flight, self._kept = None, None, []
        module.recorded_scores, module.automatic_optimization = None, True

    def _launch(self, trainer: pl.Trainer, least: int = 0) -> None:
        """Launch epochs, but none that early stopping or `max_epochs` could skip."""
        stop = trainer.current_epoch + self._stopping.patience - self._stopping.wait_count
        assert trainer.max_epochs is not None
        count = max(least, min(AHEAD, min(stop, trainer.max_epochs) - self._launched))
        if count <= 0:
            return
        assert self._replay is not None
        for _ in range(count):
            self._replay()
        self._launched += count
        history = self._history.to("cpu", non_blocking=True, copy=True)
        event = torch.cuda.Event() if self._history.is_cuda else None  # type: ignore[no-untyped-call]
        if event is not None:
            event.record()
        self._in_flight = history[-count:], event

    def _obstacle(self, trainer: pl.Trainer, module: "NodeClassification") -> str | None:
        """Return why epochs may differ from one another, or `None`."""
        for name, plain in PLAIN.items():
            if (value := getattr(trainer, name)) != plain:
                return f"trainer.{name} is {value}"
        if module.adversary is not None:
            return "adversarial training attacks the graph of each epoch"
        if trainer.lr_scheduler_configs:
            return "a scheduler changes the learning rate"
        if any(part._forward_hooks or part._forward_pre_hooks for part in module.model.modules()):
            return "the model has hooks"
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if callback in self._known:
                continue
            for name in filter(IN_AN_EPOCH.match, vars(pl.Callback)):
                hook = getattr(callback, name)
                if getattr(hook, "__func__", None) is not getattr(pl.Callback, name):
                    return f"{type(callback).__name__} has {name}"
        return None

    def _record(self, trainer: pl.Trainer, module: "NodeClassification") -> str | None:
        """Record an epoch if its replays are as plain epochs; else return why not."""
        self._launched = trainer.current_epoch
        (optimizer,) = trainer.optimizers
        on = module.device
        self._history = torch.zeros(AHEAD, 4, device=on)
        number = torch.tensor(self._launched, device=on)
        is_finite = torch.ones((), dtype=torch.bool, device=on)
        numbers = self._best.accuracy, self._best.epoch
        best = [
            *[torch.tensor(value, device=on) for value in numbers],
            *self._best.state.values(),
        ]

        @_buffers_stay(module)
        def epoch() -> None:
            loss, accuracy = module.score(self._batches["train"])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            with torch.no_grad(), _eval_mode(module):
                values = loss, accuracy, *module.validation_score(self._batches["val"])
                scores = torch.stack([value.to(self._history.dtype) for value in values])
                self._history.copy_(torch.cat([self._history[1:], scores[None]]))
                number.add_(1)
                is_finite.logical_and_(scores[0].isfinite())  # an error ends the training there
                is_better = is_finite & ((scores[3] > best[0]) | best[0].isnan())
                current = [scores[3], number, *module.state_dict().values()]
                for kept, value in zip(best, current, strict=True):
                    torch.where(is_better, value, kept, out=kept)

        of_optimizer = [t for state in optimizer.state.values() for t in state.values()]
        written = [self._history, number, is_finite, *best, *of_optimizer]
        self._host = _Host(module.model, optimizer)
        state = _State(module.model, filter(torch.is_tensor, written), self._host)

        def two(run: _Run) -> list[Tensor]:
            state.restore()
            run(), run()
            gradients = [p.grad.flatten() for p in module.parameters() if p.grad is not None]
            values = [self._history[-2:], torch.cat(gradients), *module.buffers()]
            return [value.clone() for value in values]

        try:
            expected = two(epoch)
            if not self._host.is_unchanged():
                return "an epoch changes attributes of the model"
            if self._host.has_drawn():
                return "an epoch draws random numbers on the host"
            replay = record(epoch)
            if not all(map(_close, two(replay), expected)):
                return "replayed epochs differ from plain ones"
        except Exception as error:  # the plain epoch raises an error of the model again
            return str(error).strip().partition("\n")[0] or type(error).__name__
        finally:
            state.restore()
        log.debug("training epochs are launched as one CUDA graph")
        self._replay, self._kept = replay, best
        module.automatic_optimization = False
        return None


def record(function: _Run) -> _Run:
    """Record what a function launches on the current CUDA device; return its replay.

    The function runs once beforehand, and must not need a host sync. Garbage collection is off
    while it is recorded, since it may free objects that a recording must not free.
    """
    gc.collect()
    was_enabled, debug_mode = gc.isenabled(), torch.cuda.get_sync_debug_mode()
    gc.disable()
    current = torch.cuda.current_stream()
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()  # type: ignore[no-untyped-call]
    try:
        with torch.cuda.stream(current):  # a failed recording leaves its stream as the current one
            side.wait_stream(current)
            torch.cuda.set_sync_debug_mode("error")
            with torch.cuda.stream(side):
                function()
            torch.cuda.set_sync_debug_mode(debug_mode)
            current.wait_stream(side)
            with torch.cuda.graph(graph, stream=side):
                function()
    except Exception:  # a failed recording also leaves the generator unusable
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        generator.graphsafe_set_state(torch.Generator(generator.device))
        raise
    finally:
        torch.cuda.set_sync_debug_mode(debug_mode)
        if was_enabled:
            gc.enable()
    return graph.replay


class _Host:
    """Snapshot of plain attributes, rates, gradient flags, storages and the host's random states.

    Random states may change between epochs, but not within one.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model = model
        self._values = [
            (attributes, name, deepcopy(value))
            for attributes in chain(map(vars, model.modules()), optimizer.param_groups)
            for name, value in attributes.items()
            if _is_plain(value)
        ]
        self._random = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
        self._learns = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
        # Held, so that nothing else can be allocated at their addresses.
        self._tensors = [tensor.detach() for tensor in _tensors(model)]

    def has_drawn(self) -> bool:
        """Return whether random numbers were drawn on the host, where a replay draws none."""
        python, numpy, cpu = self._random
        return (
            random.getstate() != python
            or str(np.random.get_state()) != str(numpy)  # noqa: NPY002 - as models do
            # Other devices than CUDA's draw from the CPU's generator.
            or (self._tensors[0].is_cuda and not torch.equal(torch.get_rng_state(), cpu))
        )

    def is_unchanged(self) -> bool:
        return (
            all(attributes.get(name) == value for attributes, name, value in self._values)
            and all(parameter.requires_grad == learns for parameter, learns in self._learns)
            and _addresses(self._tensors) == _addresses(_tensors(self._model))
        )

    def restore(self) -> None:
        for attributes, name, value in self._values:
            if attributes.get(name) != value:  # others may share an object that has not changed
                attributes[name] = deepcopy(value)
        python, numpy, cpu = self._random
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        torch.set_rng_state(cpu)


def _is_plain(value: object) -> bool:
    """Return whether a value is a number or a string, or holds such values alone."""
    if isinstance(value, dict):
        return all(map(_is_plain, chain(value, value.values())))
    if isinstance(value, list | tuple | set):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _tensors(model: nn.Module) -> Iterable[Tensor]:
    return chain(model.parameters(), model.buffers())


def _addresses(tensors: Iterable[Tensor]) -> list[int]:
    """Return the addresses that a recording reads; assigning to `.data` changes them."""
    return [tensor.data_ptr() for tensor in tensors]


class _State:
    """Snapshot of all that an epoch can change: tensors, random states and attributes."""

    def __init__(self, model: nn.Module, written: Iterable[Tensor], host: _Host) -> None:
        tensors = [*_tensors(model), *written]
        self._values = [(tensor, tensor.detach().clone()) for tensor in tensors]
        self._buffers = _buffers(model)
        devices = {tensor.device for tensor in tensors if tensor.is_cuda}
        self._random = {device: torch.cuda.get_rng_state(device) for device in devices}
        self._host = host

    @torch.no_grad()
    def restore(self) -> None:
        self._host.restore()
        for holder, name, buffer in self._buffers:
            holder[name] = buffer
        for tensor, value in self._values:
            tensor.copy_(value)
        for device, state in self._random.items():
            torch.cuda.set_rng_state(state, device)


def _buffers(module: nn.Module) -> list[tuple[dict[str, Tensor | None], str, Tensor]]:
    """Return the buffers with the dictionaries and names under which a pass may replace them."""
    return [
        (part._buffers, name, buffer)
        for part in module.modules()
        for name, buffer in part._buffers.items()
        if buffer is not None
    ]


@contextmanager
def _buffers_stay(module: nn.Module) -> Iterator[None]:
    """Copy buffers that a pass replaces into the former ones, whose addresses are recorded."""
    buffers = _buffers(module)
    yield
    for holder, name, buffer in buffers:
        if (new := holder[name]) is not None and new is not buffer:
            holder[name] = buffer.copy_(new.detach())


@contextmanager
def _eval_mode(module: nn.Module) -> Iterator[None]:
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _close(actual: Tensor, expected: Tensor) -> bool:
    if not expected.is_floating_point():
        return torch.equal(actual, expected)
    largest = expected.abs().max() if expected.numel() else torch.zeros(())
    return torch.allclose(actual, expected, 0.0, RELATIVE * largest.item() + 1e-30, equal_nan=True)
