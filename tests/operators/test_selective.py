from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from robust_diffusion.operators import SelectiveTensor


class Doubled(SelectiveTensor):
    """Twice its source; knows its own exponential, and that of nothing else."""

    def shortcut(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        return torch.full((3,), 7.0) if func is torch.exp else None


@pytest.fixture
def known() -> Doubled:
    return doubled(torch.tensor([0.5, 1.0, 1.5]))[0]


def test_a_known_function_is_taken_and_any_other_sees_the_plain_tensor(known: Doubled) -> None:
    assert torch.equal(torch.exp(known), torch.full((3,), 7.0))
    assert torch.equal(known + 1, torch.tensor([2.0, 3.0, 4.0]))
    assert torch.equal(torch.cat([torch.zeros(1), known]), torch.tensor([0.0, 1.0, 2.0, 3.0]))
    assert torch.equal(torch.add(torch.ones(3), other=known), torch.tensor([2.0, 3.0, 4.0]))
    assert torch.equal(torch.maximum(known, known), torch.tensor([1.0, 2.0, 3.0]))
    assert type(known + 1) is Tensor


def test_what_changes_nothing_returns_itself() -> None:
    known = Doubled.of(torch.ones(3))
    assert known.to("cpu") is known
    assert known.contiguous() is known
    assert type(known.double()) is Tensor


class Squares(torch.autograd.Function):
    """The sum of squares, its derivative written out: autograd asks no subclass here."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.square().sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * grad * x


def doubled(source: Tensor) -> tuple[Doubled, list[Tensor]]:
    """Twice the source, which does not matter to its gradient, and what was made so far."""
    made: list[Tensor] = []

    def make() -> Tensor:
        made.append(2 * source)
        return made[-1]

    return Doubled.standing_for(make, source.shape, like=source, sources=[source]), made


def test_entries_are_made_when_looked_at_and_once() -> None:
    tensor, made = doubled(torch.tensor([[1.0, 3.0]]))
    assert (tensor.shape, tensor.dtype, tensor.dim()) == ((1, 2), torch.float32, 2)
    assert made == []
    assert torch.equal(tensor + 0, torch.tensor([[2.0, 6.0]]))
    assert torch.equal(tensor * 1, torch.tensor([[2.0, 6.0]]))
    assert len(made) == 1


def test_entries_made_without_gradients_are_made_again_with_them() -> None:
    source = torch.tensor([1.0, 3.0], requires_grad=True)
    tensor, made = doubled(source)
    with torch.no_grad():
        assert not (tensor + 0).requires_grad
    (gradient,) = torch.autograd.grad((tensor * 5).sum(), source)
    assert torch.equal(gradient, torch.tensor([10.0, 10.0]))
    assert len(made) == 2


@pytest.mark.parametrize("squares", [lambda x: x.square().sum(), Squares.apply], ids=["op", "own"])
def test_gradients_reach_what_the_entries_are_made_of(squares: Callable[[Tensor], Tensor]) -> None:
    source = torch.tensor([1.0, 3.0], requires_grad=True)
    tensor, _ = doubled(source)
    out = squares(tensor)
    assert out == 40
    (gradient,) = torch.autograd.grad(out, source)
    assert torch.equal(gradient, torch.tensor([8.0, 24.0]))
