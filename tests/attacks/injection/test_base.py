import math

import pytest
import torch
from torch import Tensor

from robust_diffusion.attacks import SPEIT
from robust_diffusion.attacks.injection.base import connect, predicted_labels
from robust_diffusion.errors import AttackError, ConfigError


def attack(learning_rate: float = 0.1, num_steps: int = 200) -> SPEIT:
    return SPEIT(learning_rate=learning_rate, num_steps=num_steps)


def distance_to_3(free: Tensor) -> Tensor:
    return (free - 3).square().sum()


def test_connect_appends_both_directions() -> None:
    before = torch.tensor([[0, 1], [1, 0]])
    targets = [torch.tensor([1, 0]), torch.tensor([], dtype=torch.long), torch.tensor([1])]
    after = connect(before, targets, 7)
    new = [(7, 1), (7, 0), (9, 1)]
    expected = [(0, 1), (1, 0), *new, *((v, u) for u, v in new)]
    assert [tuple(edge) for edge in after.T.tolist()] == expected
    assert before.tolist() == [[0, 1], [1, 0]]


def test_predicted_labels_carry_no_gradient() -> None:
    x = torch.tensor([[0.0, 2.0], [1.0, 0.0]], requires_grad=True)
    seen = []

    def model(x: Tensor, edge_index: Tensor) -> Tensor:
        seen.append(torch.is_grad_enabled())
        return 2 * x

    assert predicted_labels(model, x, torch.empty(2, 0, dtype=torch.long)).tolist() == [1, 0]
    assert seen == [False]


def test_minimize_finds_the_minimum() -> None:
    found = attack().minimize(torch.zeros(2, 3), distance_to_3)
    torch.testing.assert_close(found, torch.full((2, 3), 3.0), atol=0.05, rtol=0)
    assert not found.requires_grad


def test_minimize_projects_after_each_step() -> None:
    seen = []

    def project(free: Tensor) -> Tensor:
        seen.append(free.max().item())
        return free.clamp(max=1.0)

    found = attack(num_steps=30).minimize(torch.zeros(1, 2), distance_to_3, project)
    assert torch.equal(found, torch.ones(1, 2))
    assert len(seen) == 30
    assert 1 < max(seen) < 1.2


def test_minimize_leaves_its_start_alone() -> None:
    start = torch.zeros(1, 2)
    attack(num_steps=3).minimize(start, distance_to_3)
    assert not start.any()
    assert not start.requires_grad


def test_first_step_of_adam_has_the_length_of_the_learning_rate() -> None:
    found = attack(learning_rate=0.25, num_steps=1).minimize(
        torch.tensor([[1.0, 5.0]]), distance_to_3
    )
    torch.testing.assert_close(found, torch.tensor([[1.25, 4.75]]))


def test_no_step_changes_nothing() -> None:
    start = torch.full((2, 2), 0.5)
    assert torch.equal(attack(num_steps=0).minimize(start, distance_to_3), start)


@pytest.mark.parametrize("at", [1, 3, 5])
@pytest.mark.parametrize("factor", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_at_any_step_is_an_error(at: int, factor: float) -> None:
    calls = []

    def loss(free: Tensor) -> Tensor:
        calls.append(1)
        return distance_to_3(free) * (factor if len(calls) == at else 1)

    with pytest.raises(AttackError, match=r"attack=speit: the gradient .* is not finite"):
        attack(num_steps=5).minimize(torch.zeros(1, 2), loss, lambda free: free.clamp(-1, 1))


@pytest.mark.parametrize("value", [0.0, -0.1, math.nan, math.inf])
def test_learning_rate_is_positive_and_finite(value: float) -> None:
    with pytest.raises(ConfigError, match=f"attacks.speit.learning_rate={value}: must be"):
        attack(learning_rate=value)


@pytest.mark.parametrize("value", [-1, True])
def test_num_steps_is_whole_and_not_negative(value: int) -> None:
    with pytest.raises(ConfigError, match=f"attacks.speit.num_steps={value}: must be"):
        attack(num_steps=value)
