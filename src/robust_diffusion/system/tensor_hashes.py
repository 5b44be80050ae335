"""Hashes of tensors and weights, and a cache of values computed from a tensor."""

import hashlib
import pickle
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary


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


_T = TypeVar("_T")


class ByTensor:
    """Cache keyed by the identity and version of a tensor; an entry goes when its tensor does.

    Writes through `.numpy()` or `.data` go unnoticed, since PyTorch does not count them.

    Examples:
        >>> import torch
        >>> from robust_diffusion.system.tensor_hashes import ByTensor
        >>> sums, x = ByTensor(), torch.ones(3)
        >>> sums.kept(x, "sum", lambda: x.sum().item())
        3.0
        >>> sums.kept(x.zero_(), "sum", lambda: x.sum().item())
        0.0
    """

    def __init__(self) -> None:
        self._known: Any = WeakIdKeyDictionary()

    def kept(self, tensor: Tensor, key: Hashable, compute: Callable[[], _T]) -> _T:
        """Return the cached result of `compute` for this tensor and key, computing it on a miss."""
        if tensor.is_inference():  # it has no version counter that would reveal a change
            return compute()
        version, known = self._known.get(tensor, (None, {}))
        if version != tensor._version:
            known = {}
            self._known[tensor] = tensor._version, known
        if key not in known:
            # Normal tensors even in inference mode: training may use them next.
            with torch.inference_mode(mode=False):
                known[key] = compute()
        result: _T = known[key]
        return result
