from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.evaluation import BlackBox
from robust_diffusion.evaluation.threat import ThreatModel
from robust_diffusion.models import GCN

Make = Callable[..., Any]


class Untouchable(nn.Module):
    """A victim that nobody may look at."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        raise AssertionError("the black-box attacker looked at the victim")


@pytest.fixture
def black_box(make_fit: Make) -> BlackBox:
    def surrogate(in_channels: int, out_channels: int) -> nn.Module:
        return GCN(in_channels, 8, out_channels)

    return BlackBox(surrogate, make_fit())


def test_is_a_threat_model(black_box: BlackBox) -> None:
    assert isinstance(black_box, ThreatModel)
    assert black_box.name == "black_box"


def test_attacks_a_trained_surrogate_and_not_the_victim(
    black_box: BlackBox, make_datamodule: Make, tmp_path: Path
) -> None:
    victim, datamodule = Untouchable(), make_datamodule()
    attacked = black_box.attacked_model(victim, datamodule, tmp_path)
    assert isinstance(attacked, GCN)
    assert not attacked.training
    assert torch.equal(victim.weight, torch.ones(3))
    view = datamodule.view("test")
    assert attacked(view.x, view.edge_index).shape == (200, datamodule.num_classes)
    assert [path.name for path in tmp_path.iterdir()] == ["surrogate-best.ckpt"]


def test_the_random_state_alone_decides_the_surrogate(
    black_box: BlackBox, make_datamodule: Make, tmp_path: Path
) -> None:
    weights = []
    for victim in (Untouchable(), nn.Linear(2, 2)):
        torch.manual_seed(5)
        attacked = black_box.attacked_model(
            victim, make_datamodule(), tmp_path / type(victim).__name__
        )
        weights.append([p.detach().clone() for p in attacked.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
