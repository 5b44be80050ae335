"""Modes that refuse what a forward pass on an accelerator must not do."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

WAITS = {
    aten._local_scalar_dense,
    aten._unique,
    aten._unique2,
    aten.bincount,
    aten.equal,
    aten.is_nonzero,
    aten.masked_select,
    aten.nonzero,
    aten.unique_consecutive,
    aten.unique_dim,
}
COPIES = {aten._to_copy, aten.copy_}
INDEXES = {aten.index, aten.index_put, aten.index_put_}


class WithoutWaiting(TorchDispatchMode):
    """Raises where the host would wait for the device, or a tensor would change its device."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        packet = func.overloadpacket
        if packet in WAITS or (packet in INDEXES and any(map(is_mask, args[1]))):
            raise AssertionError(f"{func} waits for the device")
        out = func(*args, **(kwargs or {}))
        if packet in COPIES:
            given = args[1] if packet is aten.copy_ else args[0]
            if given.device != out.device:
                raise AssertionError(f"{func} copies from {given.device} to {out.device}")
        return out


def is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def elsewhere() -> torch.device:
    """A context in which a tensor made without a device is on another one than the inputs."""
    return torch.device("meta")
