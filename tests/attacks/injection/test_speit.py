import pytest

from robust_diffusion.attacks import SPEIT, Budget
from tests.attacks.contract import graph, run
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
