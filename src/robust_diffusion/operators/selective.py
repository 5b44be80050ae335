"""Tensors that compute a few functions in their own way."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_ATTRIBUTES = ("shape", "ndim", "dtype", "device", "requires_grad")

ABOUT = frozenset(
    [Tensor.size, Tensor.dim, Tensor.numel, *(getattr(Tensor, a).__get__ for a in _ATTRIBUTES)]
)
"""Properties of a tensor that need none of its entries."""


_Own = TypeVar("_Own", bound="SelectiveTensor")


class SelectiveTensor(Tensor):
    """A tensor with faster ways to some functions; for all others it is a plain tensor.

    Inputs are mostly zeros, and attacks change a few rows of them, so that a first layer or a
    similarity can be had in a fraction of the time. A wrapper or another argument would have to be
    known to every model, also those of users; a tensor passes through any model as it is, and only
    `shortcut` says for which functions there is a faster way.

    `torch.autograd.Function.apply` asks no subclass. A tensor whose storage does not hold its
    entries must therefore be in the graph of gradients by itself, as `standing_for` makes it.
    """

    make: Callable[[], Tensor]
    made: dict[bool, Tensor]

    @classmethod
    def of(cls: type[_Own], x: Tensor) -> _Own:
        """A tensor that holds its entries."""
        out = x.as_subclass(cls)
        out.make, out.made = lambda: x, {}
        return out

    @classmethod
    def standing_for(
        cls: type[_Own],
        make: Callable[[], Tensor],
        shape: Sequence[int],
        *,
        like: Tensor,
        sources: Sequence[Tensor],
    ) -> _Own:
        """A tensor whose entries are made on first use; its own storage holds NaN.

        `like` gives type and device; `sources` are the tensors that `make` takes gradients to.
        """
        out = cls.of(_StandIn.apply(make, like, shape, *sources))  # type: ignore[no-untyped-call]
        out.make = make
        return out

    def plain(self) -> Tensor:
        """The same entries, as a tensor like any other."""
        with_gradient = torch.is_grad_enabled()  # made without them, it could not be trained on
        if with_gradient not in self.made:
            self.made[with_gradient] = self.make()
        return self.made[with_gradient]

    @abstractmethod
    def shortcut(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Result of `func(self, *args, **kwargs)`; `None` leaves it to the plain tensor."""

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
            if func in ABOUT:
                return func(*args, **kwargs)
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


class _StandIn(torch.autograd.Function):
    """Has the shape of entries, and passes their gradient on to what they are made of."""

    @staticmethod
    def forward(
        ctx: Any, make: Callable[[], Tensor], like: Tensor, shape: Sequence[int], *sources: Tensor
    ) -> Tensor:
        ctx.make = make
        ctx.save_for_backward(*sources)
        return like.new_full([1] * len(shape), torch.nan).expand(*shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        with torch.enable_grad():
            made = ctx.make()  # anew: what was made before is in a graph that may be gone
        sources = [source for source in ctx.saved_tensors if source.requires_grad]
        found = iter(torch.autograd.grad(made, sources, grad))
        parts = (next(found) if source.requires_grad else None for source in ctx.saved_tensors)
        return None, None, None, *parts
