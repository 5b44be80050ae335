from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import degree

from robust_diffusion.attacks import Budget, PerturbedGraph, PGDModification, spent_budget
from robust_diffusion.attacks.modification.pgd_modification import _removed_in_turn
from tests.attacks.contract import clean, graph, trained


def run(epsilon: float = 0.1, *, edges: float = 0.0, nodes: float = 0.5, **options: Any) -> Any:
    budget = Budget(0, 0, (-0.94, 0.94), node_ratio=nodes, edge_ratio=edges, epsilon=epsilon)
    generator = torch.Generator().manual_seed(0)
    attack = PGDModification(**options)
    return attack(trained(), clean(graph()), graph().index_test, budget, generator)


def change(perturbed: PerturbedGraph) -> Tensor:
    return perturbed.x - graph().x


@pytest.mark.parametrize(
    ("variant", "length"), [("ball", 0.03), ("step", 0.1)], ids=["ball", "step"]
)
def test_one_step_is_the_sign_of_the_gradient(variant: str, length: float) -> None:
    perturbed = run(variant=variant, num_steps=1, step_size=0.03)
    x = graph().x.clone().requires_grad_()
    labels = trained()(x, graph().edge_index).argmax(1)
    targets = graph().index_test
    logits = trained()(x, graph().edge_index)
    (gradient,) = torch.autograd.grad(F.cross_entropy(logits[targets], labels[targets]), x)
    nodes = change(perturbed).any(1).nonzero().squeeze(1)
    assert nodes.numel() == 30 if variant == "ball" else 15 < nodes.numel() < 30
    inner = graph().x.detach().abs().max(1).values < 0.8
    nodes = nodes[inner[nodes]]
    assert nodes.numel() > 5
    torch.testing.assert_close(change(perturbed)[nodes], length * gradient[nodes].sign())


def test_many_steps_stay_in_the_ball_or_leave_it() -> None:
    ball, step = (
        spent_budget(clean(graph()), run(variant=variant, num_steps=40)).largest_feature_change
        for variant in ("ball", "step")
    )
    assert ball == pytest.approx(0.1)
    assert step > 0.5


def test_a_ball_larger_than_the_limits_ends_at_the_limits() -> None:
    perturbed = run(10.0, num_steps=5, step_size=5.0)
    changed = change(perturbed).any(1)
    ends = perturbed.x[changed]
    assert ((ends.abs() - 0.94).abs() < 1e-6).float().mean() > 0.9
    assert (ends.abs() <= graph().x[changed].abs().clamp(min=0.94)).all()


def test_edges_are_only_removed_and_no_node_is_isolated() -> None:
    perturbed = run(edges=1.0, num_steps=0)
    spent = spent_budget(clean(graph()), perturbed)
    assert spent.added_edges == spent.changed_nodes == 0
    n = graph().num_nodes
    before, after = (degree(e[0], n) for e in (graph().edge_index, perturbed.edge_index))
    assert torch.equal(after > 0, before > 0)
    # Every edge that is left at a target is the last of one of its ends.
    src, dst = perturbed.edge_index
    left = torch.isin(src, graph().index_test)
    assert (torch.minimum(after[src], after[dst])[left] == 1).all()
    assert spent.removed_edges > 0


def test_the_budget_of_edges_is_spent_where_it_can_be() -> None:
    spent = spent_budget(clean(graph()), run(edges=0.2, num_steps=0))
    src, dst = graph().edge_index
    at_target = torch.isin(src, graph().index_test) | torch.isin(dst, graph().index_test)
    assert spent.removed_edges == int(0.2 * int(at_target.sum() // 2))


def test_edges_go_one_after_the_other() -> None:
    # A triangle and a tail: once (0, 1) is gone, node 0 has one edge left, and so has 1.
    candidates = torch.tensor([[0, 0, 1, 2], [1, 2, 2, 3]])
    degrees = torch.tensor([2, 2, 3, 1])
    assert _removed_in_turn(candidates, degrees, 4).T.tolist() == [[0, 1]]
    assert _removed_in_turn(candidates[:, [3, 1, 2]], degrees, 4).T.tolist() == [[0, 2], [1, 2]]
    assert _removed_in_turn(candidates, degrees, 0).shape == (2, 0)


def test_an_edge_that_is_listed_again_is_put_back() -> None:
    degrees = torch.tensor([3, 3, 3])
    listed = torch.tensor([[0, 1, 1, 0], [1, 2, 0, 1]])
    gone = [_removed_in_turn(listed, degrees, most).T.tolist() for most in range(5)]
    assert gone == [[], [[0, 1]], [[0, 1], [1, 2]], [[1, 2]], [[1, 2], [0, 1]]]


def test_grbs_code_draws_nodes_with_replacement_and_counts_all_edges() -> None:
    spent = spent_budget(clean(graph()), run(edges=0.2, nodes=1.0, variant="step", num_steps=1))
    t = graph().index_test.numel()
    assert 0.5 * t < spent.changed_nodes < 0.75 * t  # 1 - 1 / e of them
    strict = spent_budget(clean(graph()), run(edges=0.2, num_steps=0))
    assert strict.removed_edges < spent.removed_edges <= 0.2 * graph().num_edges / 2


def test_with_grbs_list_edges_between_targets_are_put_back() -> None:
    src, dst = graph().edge_index
    at = torch.isin(src, graph().index_test) & torch.isin(dst, graph().index_test)
    between = set(map(tuple, graph().edge_index[:, at].T.tolist()))
    kept = {}
    for variant in ("ball", "step"):
        perturbed = run(edges=1.0, variant=variant, num_steps=0)
        kept[variant] = len(between & set(map(tuple, perturbed.edge_index.T.tolist())))
    assert kept["ball"] <= 0.5 * len(between)
    assert kept["step"] > 0.9 * len(between)


def test_only_the_step_reading_waives_limits() -> None:
    assert PGDModification(variant="ball").unbounded == {}
    waived = {"epsilon": "length of a step", "edge_ratio": "share of all edges"}
    assert PGDModification(variant="step").unbounded == waived


def test_a_target_alone_keeps_its_only_edge() -> None:
    data = Data(x=torch.zeros(2, 7), edge_index=torch.tensor([[0, 1], [1, 0]]))
    budget = Budget(0, 0, (-1.0, 1.0), edge_ratio=1.0, node_ratio=0.0)
    perturbed = PGDModification()(
        lambda x, e: x, data, torch.tensor([0]), budget, torch.Generator().manual_seed(0)
    )
    assert torch.equal(perturbed.edge_index, data.edge_index)
