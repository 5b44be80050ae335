"""Meta-gradients against an explicit training on dense matrices, and the flips that follow them."""

from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks import Budget, Metattack
from robust_diffusion.attacks.modification.base import flipped
from robust_diffusion.errors import AttackError, ConfigError
from tests.attacks.contract import clean, graph, run

TRAIN = torch.zeros(200, dtype=torch.bool).index_fill(0, graph().index_train[:60], value=True)
EPOCHS, RATE, MOMENTUM = 25, 0.2, 0.8
LOSSES: tuple[Literal["self", "train"], ...] = ("self", "train")


def dense(edge_index: Tensor) -> Tensor:
    return torch.zeros(200, 200).double().index_put(tuple(edge_index), torch.tensor(1.0).double())


def loss_after_training(a: Tensor, loss: str, weight: Tensor) -> Tensor:
    x, y = graph().x.double(), graph().y
    looped = a + torch.eye(200)
    smooth = looped.sum(1).rsqrt()[:, None] * looped * looped.sum(0).rsqrt()
    smooth = smooth @ smooth @ x
    weight, step = weight.clone().requires_grad_(), torch.zeros_like(weight)
    for _ in range(EPOCHS):
        fitted = F.cross_entropy((smooth @ weight)[TRAIN], y[TRAIN])
        (slope,) = torch.autograd.grad(fitted, weight, create_graph=True)
        step = MOMENTUM * step + slope
        weight = weight - RATE * step
    scored = TRAIN if loss == "train" else ~TRAIN
    return F.cross_entropy((smooth @ weight)[scored], y[scored])


@pytest.fixture
def weight() -> Tensor:
    return torch.randn(16, 7, dtype=torch.double, generator=torch.Generator().manual_seed(0))


def attack(loss: Literal["self", "train"]) -> Metattack:
    return Metattack(loss=loss, num_epochs=EPOCHS, learning_rate=RATE, momentum=MOMENTUM)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_meta_gradient_is_that_of_a_training_step_by_step(
    loss: Literal["self", "train"], weight: Tensor
) -> None:
    edges, x, y = graph().edge_index, graph().x.double(), graph().y
    found = attack(loss).meta_gradient(x, edges, y, TRAIN, weight)
    a = dense(edges).requires_grad_()
    (slope,) = torch.autograd.grad(loss_after_training(a, loss, weight), a)
    off = ~torch.eye(200, dtype=torch.bool)
    torch.testing.assert_close(found[off], (slope + slope.T)[off])
    a = a.detach()
    for u, v in ((0, 1), (3, 150), edges[:, 7].tolist()):  # and that of differences
        pair = torch.tensor([u, v]), torch.tensor([v, u])
        up, down = (
            loss_after_training(a.index_put(pair, a[u, v] + by), loss, weight)
            for by in (1e-5, -1e-5)
        )
        difference = float((up - down).detach()) / 2e-5
        assert found[u, v] == pytest.approx(difference, rel=1e-4, abs=1e-8)


def poison(data: Data | None = None, ratio: float = 0.1, **options: object) -> tuple[Tensor, Data]:
    """Flips of a poisoning, which reaches all nodes and is told the train nodes."""
    data = data or Data(**clean(graph()).to_dict(), y=graph().y, index_train=TRAIN.nonzero()[:, 0])
    attack = Metattack(num_epochs=EPOCHS, **options)  # type: ignore[arg-type]
    found = run(attack, data=data, targets=torch.arange(200), budget=Budget(edge_ratio=ratio))
    return flipped(data.edge_index, found.edge_index, 200), found.to_data()


def test_every_flip_counts_and_leaves_no_node_alone() -> None:
    flips, found = poison()
    assert flips.size(1) == int(0.1 * graph().edge_index.size(1) / 2)
    assert torch.equal(found.x, graph().x)
    before, after = (torch.bincount(of.edge_index[0], minlength=200) for of in (graph(), found))
    assert ((after > 0) == (before > 0)).all() or (after >= before)[before == 0].all()
    flips, found = poison(ratio=1.0, loss="train")
    after = torch.bincount(found.edge_index[0], minlength=200)
    assert not ((after == 0) & (before > 0)).any()


def test_the_loss_after_a_training_on_the_result_rises(weight: Tensor) -> None:
    for loss in LOSSES:
        _, found = poison(loss=loss, learning_rate=RATE, momentum=MOMENTUM)
        before, after = (dense(of.edge_index) for of in (graph(), found))
        rise = loss_after_training(after, loss, weight) - loss_after_training(before, loss, weight)
        assert rise > 0.1


@pytest.mark.faults
def test_a_directed_graph_or_one_without_train_nodes_is_one_clear_line() -> None:
    data = Data(**clean(graph()).to_dict(), y=graph().y, index_train=TRAIN.nonzero()[:, 0])
    data.edge_index = data.edge_index[:, 1:]
    with pytest.raises(AttackError, match=r"^attack=metattack: the graph is directed; [^\n]*$"):
        poison(data)
    with pytest.raises(ConfigError, match=r"^target nodes: all; [^\n]*$"):
        poison(Data(**clean(graph()).to_dict(), y=graph().y))
