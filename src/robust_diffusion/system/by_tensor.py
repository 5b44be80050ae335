"""Values that are found once for a tensor, and again when someone has written to it."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

_T = TypeVar("_T")


class ByTensor:
    """Values by the identity and version of a tensor; an entry goes when its tensor does.

    PyTorch does not count writes through `.numpy()` or `.data`, so they go unnoticed.

    Examples:
        >>> import torch
        >>> from robust_diffusion.system.by_tensor import ByTensor
        >>> sums, x = ByTensor(), torch.ones(3)
        >>> sums.kept(x, "sum", lambda: x.sum().item())
        3.0
        >>> sums.kept(x.zero_(), "sum", lambda: x.sum().item())
        0.0
    """

    def __init__(self) -> None:
        self._known: Any = WeakIdKeyDictionary()

    def kept(self, tensor: Tensor, key: Hashable, compute: Callable[[], _T]) -> _T:
        """Result of `compute`, reused if it was computed for this tensor and key before."""
        if tensor.is_inference():  # no version counter tells whether such a tensor has changed
            return compute()
        version, known = self._known.get(tensor, (None, {}))
        if version != tensor._version:
            known = {}
            self._known[tensor] = tensor._version, known
        if key not in known:
            # Normal tensors even when first asked for in inference mode: training may come next.
            with torch.inference_mode(mode=False):
                known[key] = compute()
        found: _T = known[key]
        return found
