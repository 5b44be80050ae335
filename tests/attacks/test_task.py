"""What an attacker knows: classes that are true, predicted, or those of train nodes."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks import Task
from robust_diffusion.attacks.base import gradient
from robust_diffusion.attacks.task import Knowledge
from robust_diffusion.models.victim import Victim

X = torch.tensor([[0.0, 2.0], [1.0, 0.0], [3.0, 5.0]])
GRAPH = Data(x=X, edge_index=torch.tensor([[0, 1], [1, 0]]))
TARGETS = torch.tensor([2, 0])


def double(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    return 2 * x if edge_weight is None else 2 * x * edge_weight.mean()


@pytest.mark.parametrize(
    ("labels", "knows", "known"),
    [
        ([0, 1, 0], "predictions", [1, 0, 1]),
        ([0, 1, 0], "labels", [0, 1, 0]),
        ([0, -1, -1], "labels", [0, 0, 1]),  # the model predicts unknown classes
    ],
)
def test_attacker_view_classes(labels: list[int], knows: Knowledge, known: list[int]) -> None:
    victim = Victim(double, X, GRAPH.edge_index)
    view = Task(GRAPH, TARGETS, torch.tensor(labels)).attacker_view(victim, knows)
    assert view.all_labels.tolist() == known
    assert "y" not in view.graph
    assert view.x is not GRAPH.x


def test_attacker_view_poisoning() -> None:
    graph = GRAPH.clone()
    graph.index_train = torch.tensor([1])
    victim = Victim(double, X, GRAPH.edge_index)
    view = Task(graph, TARGETS, torch.tensor([0, 1, 0]), poisons=True).attacker_view(
        victim, "predictions"
    )
    assert view.all_labels.tolist() == [1, 1, 1]  # that of the train node, and predictions
    assert view.targets.tolist() == [0, 1, 2]


def test_loss_is_the_cross_entropy_at_the_targets() -> None:
    task = Task(GRAPH, TARGETS, torch.tensor([1, 0, 1]))
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    expected = F.cross_entropy(2 * x[TARGETS], torch.tensor([1, 1]))
    assert torch.equal(task.loss(double(x, GRAPH.edge_index)), expected)


def test_capped_loss_ignores_lost_targets() -> None:
    task = Task(GRAPH, TARGETS, torch.tensor([1, 0, 1]))
    x = torch.tensor([[9.0, 0.0], [0.0, 0.0], [0.0, 0.0]], requires_grad=True)
    loss = task.loss(double(x, GRAPH.edge_index), cap=4.0)
    assert loss.item() == pytest.approx((4 + torch.tensor(2.0).log().item()) / 2)
    slope = gradient(loss, x, "features")
    assert not slope[0].any()
    assert slope[2].all()
