"""A pretended graphics card: the CPU computes, but tensors are on a device of their own.

Unlike torch's fake tensors these hold numbers, so that what depends on data runs as it does on a
card; and on a build of torch without CUDA, fake tensors of CUDA have no backward pass.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from pytorch_lightning.accelerators import CPUAccelerator
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

aten = torch.ops.aten

CARD = "card"
"""Name of the device's type."""

WAITS = {
    aten._local_scalar_dense,
    aten._unique,
    aten._unique2,
    aten.bincount,
    aten.equal,
    aten.is_nonzero,
    aten.isin,
    aten.linalg_eigh,
    aten._linalg_eigh,
    aten._linalg_svd,
    aten.masked_select,
    aten.multinomial,
    aten.nonzero,
    aten.repeat_interleave,
    aten.unique_consecutive,
    aten.unique_dim,
}
"""Operators for whose result the host waits on CUDA, as `torch.cuda.set_sync_debug_mode` tells."""

COPIES = {aten._to_copy, aten.copy_}
COMPOSED = {aten.allclose, aten.is_nonzero, aten.item, aten.repeat_interleave, aten.to, aten.where}
"""Operators of those above, which in inference mode arrive whole."""
INDEXES = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}


class OnCard(Tensor):
    """A tensor on the card, which nobody may read but by an operator that waits."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "OnCard":
        with torch.inference_mode(held.is_inference()):  # a view is of the kind of what it views
            made = Tensor._make_wrapper_subclass(
                cls,
                held.size(),
                strides=held.stride() if held.layout == torch.strided else None,
                storage_offset=held.storage_offset() if held.layout == torch.strided else None,
                layout=held.layout,
                dtype=held.dtype,
                device=f"{CARD}:0",
            )
        made.held = held
        return made

    def __repr__(self, **_: Any) -> str:
        return f"OnCard({self.held})"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.detach().cpu().__reduce_ex__(protocol)

    @classmethod
    def __torch_dispatch__(cls, func: Any, *_: Any) -> Any:
        raise AssertionError(f"{func}: a tensor is still on the card that was given back")


class _Module(_DummyBackendModule):
    def device_count(self) -> int:
        return 0  # with random numbers of its own

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]  # asked for wherever autocast is switched off


if "ROBUST_DIFFUSION_CARD" not in os.environ:
    reason = "autograd must not have run before there is a card: make test-devices"
    pytest.skip(reason, allow_module_level=True)

# Here, since autograd makes a thread for each device that there is when it is first used.
_setup_privateuseone_for_python_backend(CARD, _Module())


@contextmanager
def card() -> Iterator[Counter[str]]:
    """While it is entered there is a device `card`; yields where the host waits for it, counted.

    Raises:
        RuntimeError: Where an operator is handed tensors of two devices, as on CUDA.
    """
    lifted = torch._C._only_lift_cpu_tensors()
    # torch.tensor(..., device=CARD) makes a tensor on the CPU, and then copies it as others do.
    torch._C._set_only_lift_cpu_tensors(True)  # noqa: FBT003
    try:
        with Card() as mode:
            yield mode.waits
    finally:
        torch._C._set_only_lift_cpu_tensors(lifted)


class _Accelerator(CPUAccelerator):
    """Lightning's, which need not know the card."""

    def setup_device(self, device: torch.device) -> None:
        pass


def strategy() -> SingleDeviceStrategy:
    """Return a strategy of Lightning's trainer that trains on the card."""
    return SingleDeviceStrategy(torch.device(CARD, 0), accelerator=_Accelerator())


class Card(TorchDispatchMode):
    """The mode that `card` enters."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        torch._C._set_only_lift_cpu_tensors(True)  # noqa: FBT003 - autograd's threads have their own
        kwargs = dict(kwargs or {})
        if func.overloadpacket in COMPOSED:
            with self:
                if (out := func.decompose(*args, **kwargs)) is not NotImplemented:
                    return out
        given = [a for a in tree_leaves((args, kwargs)) if isinstance(a, Tensor)]
        placed = {id(a.held): a for a in given if isinstance(a, OnCard)}
        there = bool(placed)
        if (device := kwargs.get("device")) is not None:
            there = torch.device(device).type == CARD
            kwargs["device"] = torch.device("cpu")
        if placed or there:
            self._check(func, given, kwargs, there=there)
        out = func(*tree_map(_held, args), **tree_map(_held, kwargs))
        if placed and torch.Tag.inplace_view in func.tags:
            with self:
                args[0].data = OnCard(out)
            return args[0]

        def place(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            return placed[id(value)] if id(value) in placed else OnCard(value) if there else value

        return tree_map(place, out)

    def _check(
        self, func: Any, given: list[Tensor], kwargs: dict[str, Any], *, there: bool
    ) -> None:
        packet, away = func.overloadpacket, [a for a in given if not isinstance(a, OnCard)]
        if packet in COPIES:
            # Even one that need not be waited for cannot be part of a CUDA graph, unless pinned.
            if away or not there:
                self._wait(func, " non_blocking" if there and kwargs.get("non_blocking") else "")
            return
        if packet in INDEXES:
            by = [i for i in tree_leaves(kwargs.get("indices") or given[1:]) if i is not None]
            if away or any(i.dtype in (torch.bool, torch.uint8) for i in by):
                self._wait(func)
            away = [a for a in away if a is given[0]]
        elif packet in WAITS:
            self._wait(func)
        if any(a.dim() or torch.Tag.pointwise not in func.tags for a in away):
            devices = [f"{tuple(a.shape)} on {a.device}" for a in given]
            raise RuntimeError(f"{func}: all tensors must be on one device: {devices}")
        generator = kwargs.get("generator")
        if there and generator is not None:
            raise RuntimeError(f"{func}: a generator on {generator.device} draws for the card")

    def _wait(self, func: Any, how: str = "") -> None:
        frame = sys._getframe(2)
        while frame.f_back and frame.f_globals["__name__"].startswith(("torch.", __name__)):
            frame = frame.f_back
        module = frame.f_globals["__name__"] if frame.f_back else "backward"
        place = f"{module.removeprefix('robust_diffusion.')}:{frame.f_lineno}"
        self.waits[f"{place} {func.overloadpacket.__name__}{how}"] += 1


def _held(value: Any) -> Any:
    return value.held if isinstance(value, OnCard) else value
