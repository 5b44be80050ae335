"""Hashes of tensors and of modules' weights."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def tensor_hash(*tensors: Tensor) -> str:
    """Return a hash of the tensors' types, shapes and values, whatever their device."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {list(tensor.shape)}\n".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def state_hash(state: Mapping[str, Tensor]) -> str:
    """Return a hash of a module's `state_dict()`; the order of its entries does not matter."""
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(f"{name} {tensor_hash(state[name])}\n".encode())
    return digest.hexdigest()
