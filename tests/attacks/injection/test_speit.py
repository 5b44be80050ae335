from importlib import import_module

import pytest
from torch import Tensor
from torch.nn.functional import cosine_similarity

from robust_diffusion.attacks import SPEIT, Budget
from tests.attacks.contract import clean, graph, run, trained
from tests.attacks.graphs import mean_of_neighbours


def test_targets_are_distinct_and_uniform() -> None:
    nodes, edges, targets = 2000, 3, graph().index_test[:10]
    budget = Budget(nodes, edges, (-1.0, 1.0))
    perturbed = run(SPEIT(num_steps=0), model=mean_of_neighbours, targets=targets, budget=budget)
    new = perturbed.edge_index[:, perturbed.edge_index[0] >= graph().num_nodes]
    assert (new[0].bincount()[graph().num_nodes :] == edges).all()
    assert new.unique(dim=1).size(1) == nodes * edges
    share = new[1].bincount(minlength=graph().num_nodes)[targets] / nodes
    # Four standard deviations of a binomial's share.
    assert share.tolist() == pytest.approx([0.3] * 10, abs=4 * (0.3 * 0.7 / nodes) ** 0.5)


def test_an_adaptive_attack_is_an_objective_of_ones_own() -> None:
    """The tutorial's, on a GCN that drops edges between unlike nodes."""
    adaptive: type[SPEIT] = import_module("alike").Alike

    def guarded(x: Tensor, edge_index: Tensor) -> Tensor:
        alike = cosine_similarity(x[edge_index[0]], x[edge_index[1]]) > 0.2
        return trained()(x, edge_index[:, alike])

    def right(attack: SPEIT) -> int:
        data = clean(graph())
        perturbed = run(attack, model=guarded, data=data, budget=Budget(12, 6, (-0.94, 0.94)))
        targets = graph().index_test
        before, after = (
            guarded(x, edges)[targets].argmax(1)
            for x, edges in ((data.x, data.edge_index), (perturbed.x, perturbed.edge_index))
        )
        return int((before == after).sum())

    assert right(adaptive(num_steps=100)) < right(SPEIT(num_steps=100))
