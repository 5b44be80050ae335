import numpy as np
import torch
from torch_geometric.utils import to_dense_adj

from robust_diffusion.attacks import Budget, EigenvectorInjection
from tests.attacks.graphs import small_graph


def test_edges_lead_to_the_largest_entries_in_turn() -> None:
    graph, (nodes, edges, count) = small_graph(), (5, 4, 2)
    n, targets = int(graph.num_nodes), graph.index_test
    attack, budget = EigenvectorInjection(num_vectors=count), Budget(nodes, edges, (0.2, 0.9))
    attacked = attack(lambda x, _: x[:, :7], graph, targets, budget, torch.Generator())
    adjacency = to_dense_adj(graph.edge_index, max_num_nodes=n)[0].double() + torch.eye(n)
    reached = torch.linalg.matrix_power(adjacency, 64) > 0
    inside = reached[reached.sum(1).argmax()].nonzero()[:, 0]
    assert 1 < len(inside) < n
    part = adjacency[inside][:, inside]
    scale = part.sum(1).rsqrt()
    entries = np.zeros((n, len(inside)))
    found = np.linalg.eigh((scale[:, None] * part * scale).numpy())[1]
    entries[inside] = np.abs(found[:, ::-1])
    entries = entries[targets]
    for vector in range(count):
        followers = [n + node for node in range(vector, nodes, count)]
        new, ends = attacked.edge_index[
            :, torch.isin(attacked.edge_index[0], torch.tensor(followers))
        ]
        assert torch.bincount(new)[followers].tolist() == [edges] * len(followers)
        largest = np.sort(entries[:, vector])[::-1][: edges * len(followers)]
        chosen = entries[torch.isin(targets, ends).numpy(), vector]
        np.testing.assert_allclose(np.sort(chosen)[::-1], largest, rtol=1e-6)
    assert (attacked.x[n:] == 0.2).all()
