import math
from functools import partial

import pytest
import torch
from torch import Tensor

from robust_diffusion.attacks.steps import RULES, Adam, Ascent, HalvingSign, Sign
from robust_diffusion.errors import AttackError


def near_3(free: Tensor) -> Tensor:
    """Highest where every entry is 3."""
    return -(free - 3).square().sum()


def climb(rule: str, num_steps: int, size: float = 0.1, start: Tensor | None = None) -> Tensor:
    start = torch.zeros(2, 3) if start is None else start
    return Ascent(start, near_3, partial(RULES[rule], size=size), attack="any").advance(num_steps)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_finds_the_maximum(rule: str) -> None:
    torch.testing.assert_close(climb(rule, 200), torch.full((2, 3), 3.0), atol=0.11, rtol=0)


@pytest.mark.parametrize("rule", RULES)
def test_first_step_has_the_given_length(rule: str) -> None:
    found = climb(rule, 1, 0.25, torch.tensor([[1.0, 5.0]]))
    torch.testing.assert_close(found, torch.tensor([[1.25, 4.75]]))


@pytest.mark.parametrize("rule", RULES)
def test_start_is_left_alone(rule: str) -> None:
    start = torch.full((2, 2), 0.5)
    assert torch.equal(climb(rule, 0, start=start), start)
    climb(rule, 3, start=start)
    assert torch.equal(start, torch.full((2, 2), 0.5))


def test_each_step_is_projected() -> None:
    seen = []

    def project(free: Tensor) -> Tensor:
        seen.append(free.max().item())
        return free.clamp(max=1.0)

    ascent = Ascent(torch.zeros(1, 2), near_3, partial(Adam, size=0.1), project, attack="any")
    assert torch.equal(ascent.advance(30), torch.ones(1, 2))
    assert len(seen) == 30
    assert 1 < max(seen) < 1.2


@pytest.mark.parametrize("rule", RULES)
def test_an_ascent_can_be_taken_up_again(rule: str) -> None:
    ascent = Ascent(torch.zeros(2, 3), near_3, partial(RULES[rule], size=0.1), attack="any")
    for steps in (1, 5, 7):
        found = ascent.advance(steps)
    assert torch.equal(found, climb(rule, 13))


def test_steps_halve_where_nothing_is_gained() -> None:
    """From 0, steps of 2 jump over the maximum at 3 and back; halved ones come near."""
    start = torch.zeros(1, 1)
    assert climb("sign", 30, 2.0, start).item() in (2, 4)
    assert climb("halving_sign", 60, 2.0, start).item() == pytest.approx(3, abs=0.1)


def test_halving_goes_on_from_the_best_point() -> None:
    variable = torch.tensor([1.0])
    rule = HalvingSign(variable, 0.5, patience=2)
    rule(torch.tensor([1.0]), torch.tensor(9.0))  # best, at 1
    rule(torch.tensor([1.0]), torch.tensor(5.0))
    assert variable.item() == 2
    rule(torch.tensor([1.0]), torch.tensor(5.0))
    assert variable.item() == 1.25


@pytest.mark.parametrize("rule", [Adam, Sign])
@pytest.mark.parametrize("at", [1, 3, 5])
@pytest.mark.parametrize("factor", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_is_an_error(
    rule: type[Adam | Sign], at: int, factor: float
) -> None:
    calls = []

    def objective(free: Tensor) -> Tensor:
        calls.append(1)
        return near_3(free) * (factor if len(calls) == at else 1)

    ascent = Ascent(
        torch.zeros(1, 2),
        objective,
        partial(rule, size=0.1),
        lambda free: free.clamp(-1, 1),
        attack="any",
    )
    with pytest.raises(AttackError, match=r"attack=any: the gradient .* is not finite"):
        ascent.advance(5)


def test_a_slope_of_0_everywhere_is_flat() -> None:
    steep, flat = (
        Ascent(torch.zeros(2, 2), raised, partial(Sign, size=0.1), attack="any")
        for raised in (near_3, lambda free: (0 * free).sum())
    )
    steep.advance(2)
    flat.advance(2)
    assert flat.is_flat
    assert not steep.is_flat
