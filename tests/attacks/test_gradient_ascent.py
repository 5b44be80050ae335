"""Step rules find a maximum, and go on where they stopped."""

from functools import partial

import pytest
import torch
from torch import Tensor

from robust_diffusion.attacks.gradient_ascent import RULES, Ascent, HalvingSign


def near_3(free: Tensor) -> Tensor:
    return -(free - 3).square().sum()


@pytest.mark.parametrize("rule", RULES)
def test_ascent_rules_and_resumption(rule: str) -> None:
    whole, parts = (
        Ascent(torch.zeros(2, 3), near_3, partial(RULES[rule], size=0.1)) for _ in range(2)
    )
    found = whole.advance(200)
    torch.testing.assert_close(found, torch.full((2, 3), 3.0), atol=0.11, rtol=0)
    for steps in (1, 5, 194):
        again = parts.advance(steps)
    assert torch.equal(again, found)


def test_halving_goes_on_from_the_best_point() -> None:
    variable = torch.tensor([1.0])
    rule = HalvingSign(variable, 0.5, patience=2)
    rule(torch.tensor([1.0]), torch.tensor(9.0))  # best, at 1
    rule(torch.tensor([1.0]), torch.tensor(5.0))
    assert variable.item() == 2
    rule(torch.tensor([1.0]), torch.tensor(5.0))
    assert variable.item() == 1.25
