import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Data

from robust_diffusion.attacks import SPEIT, Budget, PerturbedGraph
from robust_diffusion.attacks.base import Classifier
from tests.attacks.graphs import mean_of_neighbours, small_graph, trained_gcn, without_labels


@pytest.fixture(scope="module")
def graph() -> Data:
    return small_graph()


def run(
    graph: Data,
    budget: Budget,
    *,
    model: Classifier = mean_of_neighbours,
    targets: int = 60,
    num_steps: int = 0,
    learning_rate: float = 0.01,
) -> PerturbedGraph:
    attack = SPEIT(num_steps=num_steps, learning_rate=learning_rate)
    generator = torch.Generator().manual_seed(0)
    return attack(model, without_labels(graph), graph.index_test[:targets], budget, generator)


def test_targets_are_distinct_and_uniform(graph: Data) -> None:
    nodes, edges, targets = 2000, 3, 10
    perturbed = run(graph, Budget(nodes, edges, (-1.0, 1.0)), targets=targets)
    new = perturbed.edge_index[:, perturbed.edge_index[0] >= graph.num_nodes]
    assert (new[0].bincount()[graph.num_nodes :] == edges).all()
    assert new.unique(dim=1).size(1) == nodes * edges
    share = new[1].bincount(minlength=graph.num_nodes)[graph.index_test[:targets]] / nodes
    # Four standard deviations of a binomial's share.
    assert share.tolist() == pytest.approx([0.3] * targets, abs=4 * (0.3 * 0.7 / nodes) ** 0.5)


def test_first_step_ascends_the_loss_against_the_models_own_predictions(graph: Data) -> None:
    model = trained_gcn(graph)
    budget = Budget(3, 4, (-1.0, 1.0))
    start = run(graph, budget, model=model)
    injected = start.x[graph.num_nodes :].clone().requires_grad_()
    logits = model(torch.cat([graph.x, injected]), start.edge_index)[graph.index_test]
    predictions = model(graph.x, graph.edge_index)[graph.index_test].argmax(1)
    (gradient,) = torch.autograd.grad(F.cross_entropy(logits, predictions), injected)
    stepped = run(graph, budget, model=model, num_steps=1, learning_rate=0.05)
    assert torch.equal(stepped.edge_index, start.edge_index)
    clear = gradient.abs() > 1e-5
    assert clear.float().mean() > 0.9
    expected = 0.05 * gradient.sign()
    torch.testing.assert_close(
        stepped.x[graph.num_nodes :][clear], expected[clear], rtol=1e-2, atol=0
    )
