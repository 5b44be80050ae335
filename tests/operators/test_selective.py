from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from robust_diffusion.operators import SelectiveTensor


class Knowing(SelectiveTensor):
    """Knows its own exponential, and that of nothing else; holds NaN."""

    values: Tensor
    asked: list[str]

    def plain(self) -> Tensor:
        return self.values

    def shortcut(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        self.asked.append(func.__name__)
        return torch.full_like(self.values, 7) if func is torch.exp else None


@pytest.fixture
def known() -> Knowing:
    tensor = torch.full((3,), torch.nan).as_subclass(Knowing)
    tensor.values, tensor.asked = torch.tensor([1.0, 2.0, 3.0]), []
    return tensor


def test_a_known_function_is_taken(known: Knowing) -> None:
    assert torch.equal(torch.exp(known), torch.full((3,), 7.0))
    assert known.asked == ["exp"]


def test_any_other_sees_the_plain_tensor_at_any_depth(known: Knowing) -> None:
    assert torch.equal(known + 1, torch.tensor([2.0, 3.0, 4.0]))
    assert torch.equal(torch.cat([torch.zeros(1), known]), torch.tensor([0.0, 1.0, 2.0, 3.0]))
    assert torch.equal(torch.add(torch.ones(3), other=known), torch.tensor([2.0, 3.0, 4.0]))
    assert type(known + 1) is Tensor


def test_two_of_its_kind_are_both_plain(known: Knowing) -> None:
    assert torch.equal(torch.maximum(known, known), known.values)
    assert known.asked == []


def test_what_changes_nothing_returns_itself(known: Knowing) -> None:
    assert known.to("cpu") is known
    assert known.contiguous() is known
    assert type(known.double()) is Tensor
