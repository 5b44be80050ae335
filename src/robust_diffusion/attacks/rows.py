"""Features most of whose rows stay the same from step to step."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from robust_diffusion.attacks.randomness import seeded
from robust_diffusion.models.checked import is_of_this_package
from robust_diffusion.operators import SelectiveTensor


class FixedRows:
    """Rows that stay, and what a model's first layers make of them, computed once.

    An injection attack changes the features of its new nodes alone, but a model that is called
    anew in each step would normalise and multiply those of all nodes again: on Cora that is two
    thirds of the attack's time. Layers that treat each row by itself are computed for these rows
    when first met, and from then on for the new rows only. Values are the same to rounding.

    Args:
        x: The rows that stay, without gradient.
        whole: Put the rows together in each step, for a model to which `stands_in` is false.
    """

    def __init__(self, x: Float[Tensor, "n f"], *, whole: bool = False) -> None:
        self.x = x
        self.whole = whole
        # The tensors of the key are kept too, so that no other can take over their identity.
        self._known: dict[tuple[Any, ...], tuple[Any, FixedRows]] = {}

    def followed_by(self, free: Float[Tensor, "k f"]) -> Float[Tensor, "m f"]:
        """These rows, then `free`, as one tensor; gradients flow to `free`."""
        return torch.cat([self.x, free]) if self.whole else _Rows.together(self, free)

    def under(self, layer: Callable[[Tensor], Tensor], *identity: Any) -> "FixedRows":
        """Output of a layer for these rows.

        Args:
            layer: Treats each row by itself.
            identity: What tells it from other layers: its name, weights and numbers.
        """
        key = tuple(
            (id(item), item._version) if isinstance(item, Tensor) else item for item in identity
        )
        if key not in self._known:
            with torch.no_grad():
                self._known[key] = (identity, FixedRows(layer(self.x)))
        return self._known[key][1]


class _Rows(SelectiveTensor):
    """The tensor that `FixedRows.followed_by` gives, put together when looked at.

    Of a graph with many wide features, to do that in each step would take most of its time.
    """

    fixed: FixedRows
    free: Tensor

    @classmethod
    def together(cls, fixed: FixedRows, free: Tensor) -> Tensor:
        shape = (fixed.x.size(0) + free.size(0), *free.shape[1:])
        rows = cls.standing_for(
            lambda: torch.cat([fixed.x, free]), shape, like=free, sources=[free]
        )
        rows.fixed, rows.free = fixed, free
        return rows

    def shortcut(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        others = (*args, *kwargs.values())
        if func is F.layer_norm and len(kwargs.get("normalized_shape", args[:1] and args[0])) > 1:
            return None  # over the rows, too
        # A weight that is being trained has a gradient of its own, from every row.
        if func not in (F.linear, F.layer_norm) or any(
            isinstance(o, Tensor) and o.requires_grad for o in others
        ):
            return None
        fixed = self.fixed.under(lambda x: func(x, *args, **kwargs), func, *map(_hashable, others))
        return self.together(fixed, func(self.free, *args, **kwargs))


def stands_in(
    model: Callable[[Tensor, Tensor], Tensor], x: Float[Tensor, "n f"], edge_index: Tensor
) -> bool:
    """True if a model computes with `FixedRows` as with plain rows, values and gradient.

    Compiled and scripted code, for one, looks at the storage, which holds nothing. Models of the
    package and of PyTorch's layers alone are known to, by their tests.
    """
    if is_of_this_package(model):
        return True
    n = x.size(0)
    edges = torch.cat([edge_index, edge_index.new_tensor([[0, n], [n, 0]])], 1)
    found = []
    try:
        for place in (lambda new: torch.cat([x, new]), FixedRows(x).followed_by):
            with torch.enable_grad(), seeded(0):
                new = x[:1].clone().requires_grad_()
                logits = model(place(new), edges)
                found.append((logits, *torch.autograd.grad(logits.square().sum(), new)))
        for plain, rows in zip(*found, strict=True):
            torch.testing.assert_close(rows, plain, rtol=1e-3, atol=1e-4 * plain.abs().max().item())
    except Exception:  # of anybody's forward, which the attack will meet with plain rows
        return False
    return True


def _hashable(item: Any) -> Any:
    return tuple(item) if isinstance(item, list) else item
