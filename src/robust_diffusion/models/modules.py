"""Helpers for any PyTorch module: its device, copies, mode, buffers, and the random state."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from threading import RLock
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

_TURN = RLock()

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
    """Put a module in eval mode, its parameters without gradient, and restore it afterwards.

    Buffers are restored as well, since a forward may write to them even in eval mode.
    """
    if not isinstance(model, nn.Module):
        yield
        return
    modes = [(module, module.training) for module in model.modules()]
    gradients = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    buffers = [
        (module._buffers, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    model.eval()
    model.requires_grad_(requires_grad=False)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter, requires_grad in gradients:
            parameter.requires_grad_(requires_grad)
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


def device_of(model: object) -> torch.device:
    """Return the device of a module's first tensor; the CPU if it has none."""
    tensors = chain(model.parameters(), model.buffers()) if isinstance(model, nn.Module) else ()
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def dtype_of(model: object, default: torch.dtype) -> torch.dtype:
    """Return the data type of a module's first floating-point parameter, used for features."""
    parameters = model.parameters() if isinstance(model, nn.Module) else ()
    return next((p.dtype for p in parameters if p.dtype.is_floating_point), default)
