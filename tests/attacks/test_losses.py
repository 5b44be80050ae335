"""Losses of attacks, computed by hand."""

import torch

from robust_diffusion.attacks.losses import LOSSES

# Right and sure, right and unsure, lost, tied.
LOGITS = torch.tensor([[4.0, 1.0, 0.0], [1.0, 0.5, 0.0], [0.0, 3.0, 1.0], [2.0, 2.0, 0.0]])
LABELS = torch.zeros(4, dtype=torch.long)
MARGINS = [-3.0, -0.5, 3.0, 0.0]


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
