import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.utils import degree

from robust_diffusion.attacks import FlipAdversary
from robust_diffusion.attacks.audit import audit
from robust_diffusion.attacks.modification.base import flipped
from robust_diffusion.errors import ConfigError, TrainingError
from tests.attacks.graphs import small_graph, trained_gcn
from tests.attacks.injection.test_adversary import harm, view


def test_flips_harm_the_scored_nodes_within_the_budget() -> None:
    clean, model = view(), trained_gcn(small_graph()).train()
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(0)
    attacked = FlipAdversary(edge_ratio=0.3, num_steps=10).against(model)(clean)
    scored = clean.mask.nonzero()[:, 0]
    options = {"edge_ratio": 0.3, "target_nodes": scored}
    assert not audit(clean, attacked, kind="modification", **options)
    assert harm(model, attacked) > harm(model, clean)
    pairs = flipped(clean.edge_index, attacked.edge_index, 200)
    most = degree(clean.edge_index[0], 200) / 2
    assert (degree(pairs.flatten(), 200) <= most).all()
    assert torch.equal(attacked.mask, clean.mask)
    assert model.training
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_flips_are_searched_again_after_some_epochs() -> None:
    torch.manual_seed(0)
    attack = FlipAdversary(num_steps=2, epochs_per_draw=2).against(trained_gcn(small_graph()))
    first, second, third = (attack(view()).edge_index for _ in range(3))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_a_model_without_a_gradient_in_its_edges_is_refused() -> None:
    class Blind(nn.Module):
        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return x[:, :7]

    with pytest.raises(TrainingError, match=r"^adversary: [^\n]* Blind"):
        FlipAdversary().against(Blind())(view())


@pytest.mark.parametrize(
    ("key", "value"), [("block_size", 1), ("edge_ratio", 1e-9), ("local_ratio", 1e-9)]
)
def test_an_option_that_allows_no_flip_is_named_as_the_adversarys(key: str, value: Any) -> None:
    attacker = FlipAdversary(num_steps=1, **{key: value}).against(trained_gcn(small_graph()))
    with pytest.raises(ConfigError, match=rf"adversary\.{key}={value}\b"):
        attacker(view())
