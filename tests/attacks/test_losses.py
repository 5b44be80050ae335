import pytest
import torch
from torch import Tensor

from robust_diffusion.attacks.losses import LOSSES, margins

# Right and sure, right and unsure, lost, tied.
LOGITS = torch.tensor([[4.0, 1.0, 0.0], [1.0, 0.5, 0.0], [0.0, 3.0, 1.0], [2.0, 2.0, 0.0]])
LABELS = torch.zeros(4, dtype=torch.long)
MARGINS = [-3.0, -0.5, 3.0, 0.0]


def slopes(name: str) -> Tensor:
    """Gradient of each target's loss by the logit of its label."""
    logits = LOGITS.clone().requires_grad_()
    (slope,) = torch.autograd.grad(LOSSES[name](logits, LABELS).sum(), logits)
    return slope[:, 0]


def test_margin_is_the_lead_of_the_best_other_class() -> None:
    assert margins(LOGITS, LABELS).tolist() == MARGINS
    assert margins(LOGITS, torch.tensor([1, 2, 1, 1])).tolist() == [3.0, 1.0, -2.0, 0.0]


def test_losses_by_hand() -> None:
    margin, probability = torch.tensor(MARGINS), LOGITS.softmax(1)
    entropy = -probability[:, 0].log()
    expected = {
        "cross_entropy": entropy,
        "masked": entropy,
        "logit": margin,
        "margin": margin.clamp(max=0),
        "tanh_margin": margin.tanh(),
        "prob_margin": probability[:, 1:].max(1).values - probability[:, 0],
        "own_logit": -LOGITS[:, 0],
    }
    assert expected.keys() == LOSSES.keys()
    for name, values in expected.items():
        torch.testing.assert_close(LOSSES[name](LOGITS, LABELS), values)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_rises_where_a_target_can_be_lost(name: str) -> None:
    assert (slopes(name)[:2] < 0).all()


@pytest.mark.parametrize("name", ["masked", "margin"])
def test_lost_targets_pull_no_more(name: str) -> None:
    assert slopes(name)[2] == 0
    assert slopes("cross_entropy")[2] < 0


@pytest.mark.parametrize("name", ["tanh_margin", "prob_margin"])
def test_bounded_losses_pull_most_at_the_boundary(name: str) -> None:
    slope = slopes(name).abs()
    assert slope[1] > slope[0]
    assert slope[1] > slope[2]
