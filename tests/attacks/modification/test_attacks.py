from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import degree, to_dense_adj

from robust_diffusion.attacks import (
    DICE,
    GRBCD,
    LRBCD,
    PRBCD,
    Budget,
    PerturbedGraph,
    PGDModification,
    RandomFlip,
    spent_budget,
)
from robust_diffusion.attacks.modification.base import edges_at, flipped
from robust_diffusion.errors import AttackError, ConfigError
from tests.attacks import contract
from tests.attacks.contract import clean, graph, trained
from tests.attacks.graphs import mean_of_neighbours

Block = type[PRBCD] | type[GRBCD]
BUDGET = Budget(0, 0, (-1.0, 1.0), node_ratio=0.2, edge_ratio=0.2)
run = partial(contract.run, budget=BUDGET)


@pytest.mark.parametrize(("attack", "steps"), [(PRBCD, 1), (GRBCD, 1), (GRBCD, 30)])
def test_blocks_too_small_for_the_budget_are_refused(attack: Block, steps: int) -> None:
    with pytest.raises(ConfigError, match=rf"attacks\.{attack.name}\.block_size=2: "):
        run(attack(block_size=2, num_steps=steps), budget=replace(BUDGET, edge_ratio=0.5))


@pytest.mark.parametrize("attack", [PRBCD, GRBCD])
def test_a_loss_that_breaks_on_the_way_is_an_error(attack: Block) -> None:
    def breaks(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        logits = mean_of_neighbours(x, edge_index, edge_weight)
        return logits if edge_index.size(1) == graph().num_edges else logits * torch.nan

    with pytest.raises(AttackError, match=f"attack={attack.name}: "):
        run(attack(num_steps=3, block_size=2000), model=breaks)


LOCAL = Budget(0, 0, (-1.0, 1.0), node_ratio=0.2, edge_ratio=0.5)


@pytest.mark.parametrize("ratio", [0.3, 0.5, 1.0])
def test_no_node_has_more_flips_than_its_share(ratio: float) -> None:
    made = LRBCD(num_steps=10, block_size=5000, local_ratio=ratio)
    pairs = flipped(graph().edge_index, contract.run(made, budget=LOCAL).edge_index, 200)
    flips, degrees = degree(pairs.flatten(), 200), degree(graph().edge_index[0], 200)
    assert (flips <= ratio * degrees).all()
    assert flips.sum() > 0.6 * (ratio * degrees).floor()[graph().index_test].sum()


@pytest.mark.parametrize("delete_ratio", [0.0, 0.5, 0.6, 1.0])
def test_deletes_inside_and_connects_outside(delete_ratio: float) -> None:
    labels = trained()(graph().x, graph().edge_index).argmax(1)
    made = run(DICE(delete_ratio=delete_ratio), budget=replace(BUDGET, edge_ratio=0.3))
    pairs = flipped(graph().edge_index, made.edge_index, 200)
    there = to_dense_adj(graph().edge_index)[0][pairs[0], pairs[1]] > 0
    assert torch.equal(there, labels[pairs[0]] == labels[pairs[1]])
    assert there.sum() == int(pairs.size(1) * delete_ratio)


@pytest.mark.parametrize(("ratio", "add_ratio"), [(0.1, 0.5), (0.5, 0.25), (1.0, 0.0), (1.0, 1.0)])
def test_random_flip_ratios(ratio: float, add_ratio: float) -> None:
    there = edges_at(graph().index_test, graph().edge_index, graph().num_nodes).size(1)
    budget = replace(BUDGET, edge_ratio=ratio)
    perturbed = run(RandomFlip(add_ratio=add_ratio), budget=budget)
    spent = spent_budget(clean(graph()), perturbed)
    assert spent.added_edges + spent.removed_edges == int(ratio * there)
    assert spent.added_edges == round(int(ratio * there) * add_ratio)
    assert torch.equal(perturbed.x, graph().x)


def descended(*, edges: float = 0.0, nodes: float = 0.5, **options: Any) -> PerturbedGraph:
    budget = Budget(0, 0, (-0.94, 0.94), node_ratio=nodes, edge_ratio=edges, epsilon=0.1)
    return run(PGDModification(**options), budget=budget)


def change(perturbed: PerturbedGraph) -> Tensor:
    return perturbed.x - graph().x


@pytest.mark.parametrize(("variant", "length"), [("ball", 0.03), ("step", 0.1)])
def test_one_step_is_the_sign_of_the_gradient(variant: str, length: float) -> None:
    perturbed = descended(variant=variant, num_steps=1, step_size=0.03)
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


def test_edges_are_only_removed_and_no_node_is_isolated() -> None:
    perturbed = descended(edges=1.0, num_steps=0)
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


def test_grbs_code_draws_nodes_with_replacement_and_counts_all_edges() -> None:
    made = descended(edges=0.2, nodes=1.0, variant="step", num_steps=1)
    spent = spent_budget(clean(graph()), made)
    t = graph().index_test.numel()
    assert 0.5 * t < spent.changed_nodes < 0.75 * t  # 1 - 1 / e of them
    strict = spent_budget(clean(graph()), descended(edges=0.2, num_steps=0))
    assert strict.removed_edges < spent.removed_edges <= 0.2 * graph().num_edges / 2
    waived = {variant: PGDModification(variant=variant).unbounded for variant in ("ball", "step")}
    assert [set(waived[variant]) for variant in waived] == [set(), {"epsilon", "edge_ratio"}]
