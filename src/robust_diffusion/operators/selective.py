"""Tensors that take a few functions into their own hands."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


class SelectiveTensor(Tensor):
    """A tensor that knows a faster way to some functions; any other sees a plain tensor.

    Networks are written for tensors, and need not know of it. `torch.autograd.Function.apply` asks
    no subclass: a tensor whose storage does not hold its entries must be in the graph of gradients
    by itself.
    """

    @abstractmethod
    def plain(self) -> Tensor:
        """The same entries, as a tensor like any other."""

    @abstractmethod
    def shortcut(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """The result of `func(self, *args, **kwargs)`; `None` where the plain tensor has to do it.

        Args:
            func: Any function of `torch`.
            args: What follows this tensor.
            kwargs: By name.
        """

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Called by PyTorch in place of `func`."""
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if args and isinstance(args[0], cls):
                others = (*args[1:], *kwargs.values())
                if not any(isinstance(other, cls) for other in others):
                    taken = args[0].shortcut(func, args[1:], kwargs)
                    if taken is not None:
                        return taken
            plain = [_plain(item) for item in args]
            result = func(*plain, **{key: _plain(item) for key, item in kwargs.items()})
        # What changes nothing, such as a move to the device where it is, leaves it as it is.
        return args[0] if plain and result is plain[0] else result


def _plain(item: Any) -> Any:
    if isinstance(item, SelectiveTensor):
        return item.plain()
    if isinstance(item, list | tuple):
        return type(item)(_plain(part) for part in item)
    return item
