"""Hashes of tensors and of modules' weights."""

import hashlib
import pickle
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def tensor_hash(*tensors: Tensor) -> str:
    """Return a hash of the tensors' types, shapes and values, not their device."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {list(tensor.shape)}\n".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def state_hash(state: Mapping[str, Any]) -> str:
    """Return a hash of a module's `state_dict()`; the order of its entries does not matter.

    What `get_extra_state` returns is pickled, as PyTorch does to save it.
    """
    digest = hashlib.sha256()
    for name in sorted(state):
        value = state[name]
        is_tensor = isinstance(value, Tensor)
        part = tensor_hash(value) if is_tensor else hashlib.sha256(pickle.dumps(value)).hexdigest()
        digest.update(f"{name} {part}\n".encode())
    return digest.hexdigest()
