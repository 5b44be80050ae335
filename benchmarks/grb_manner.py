"""Straightforward SPEIT and TDGIA in the style of GRB: the yardstick of speed.

The adjacency is a scipy matrix to which edges are appended one by one; scores and the choice of
targets are Python loops over nodes. Whenever the graph changes, it is normalised in scipy and
converted to a torch sparse COO tensor, with which the model multiplies. The weights of the attacked
model get gradients that are never read. No code is shared with the package.
"""

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data


class CoordinateGCN(nn.Module):
    """GCN that takes the normalised adjacency as an argument.

    Args:
        weights: Weight of each layer, out x in.
        biases: Bias of each layer.
    """

    def __init__(self, weights: list[Tensor], biases: list[Tensor]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(weight.detach().clone() for weight in weights)
        self.biases = nn.ParameterList(bias.detach().clone() for bias in biases)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """Return the logits of every node."""
        last = len(self.weights) - 1
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.sparse.mm(adjacency, F.linear(x, weight)) + bias
            x = x if i == last else torch.relu(x)
        return x


def to_scipy(graph: Data) -> sp.csr_matrix:
    """Return the adjacency matrix of a graph."""
    row, col = graph.edge_index.numpy()
    ones = np.ones(row.size, dtype=np.float32)
    return sp.csr_matrix((ones, (row, col)), shape=(graph.num_nodes, graph.num_nodes))


def normalized(adjacency: sp.spmatrix) -> Tensor:
    """Return D^{-1/2} (A + I) D^{-1/2} as a torch sparse tensor."""
    with_loops = sp.coo_matrix(sp.eye(adjacency.shape[0]) + adjacency)
    degree = np.asarray(with_loops.sum(1)).flatten()
    scale = sp.diags(np.power(degree, -0.5))
    result = sp.coo_matrix(scale @ with_loops @ scale)
    place = torch.tensor(np.stack([result.row, result.col]), dtype=torch.int64)
    values = torch.tensor(result.data).float()
    return torch.sparse_coo_tensor(place, values, result.shape, check_invariants=False)


def with_edges(adjacency: sp.spmatrix, edges: list[tuple[int, int]], new: int) -> sp.coo_matrix:
    """Extend the matrix by new nodes and their edges, in both directions."""
    n = adjacency.shape[0]
    row, col, data = [], [], []
    for u, v in edges:
        row.extend([u, v])
        col.extend([v, u])
        data.extend([1, 1])
    grown = sp.vstack([adjacency, sp.csr_matrix((new, n))])
    grown = sp.coo_matrix(sp.hstack([grown, sp.csr_matrix((n + new, new))]))
    parts = (np.hstack([grown.row, row]), np.hstack([grown.col, col]))
    return sp.coo_matrix((np.hstack([grown.data, data]), parts), shape=grown.shape)


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Return the share of labels that are predicted correctly."""
    return float((logits.argmax(1) == labels).float().mean())


def speit(
    model: CoordinateGCN,
    graph: Data,
    targets: Tensor,
    *,
    nodes: int,
    edges: int,
    limits: tuple[float, float],
    steps: int,
    seed: int,
) -> tuple[Tensor, sp.coo_matrix]:
    """Draw random targets for each new node, then run Adam on the features."""
    generator = np.random.default_rng(seed)
    adjacency, x = to_scipy(graph), graph.x
    labels = model(x, normalized(adjacency)).argmax(1)
    n = x.size(0)
    chosen = []
    for i in range(nodes):
        linked = np.zeros(len(targets))
        for _ in range(edges):
            j = generator.integers(len(targets))
            while linked[j] > 0:
                j = generator.integers(len(targets))
            linked[j] = 1
            chosen.append((n + i, int(targets[j])))
    attacked = with_edges(adjacency, chosen, nodes)
    tensor = normalized(attacked)
    new = torch.zeros(nodes, x.size(1)).requires_grad_()
    optimizer = torch.optim.Adam([new], lr=0.01)
    for _ in range(steps):
        logits = model(torch.cat([x, new]), tensor)
        loss = -F.cross_entropy(logits[:n][targets], labels[targets])
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        with torch.no_grad():
            new.clamp_(*limits)
        accuracy(logits[:n][targets], labels[targets])
    return torch.cat([x, new.detach()]), attacked


def tdgia(
    model: CoordinateGCN,
    graph: Data,
    targets: Tensor,
    *,
    nodes: int,
    edges: int,
    limits: tuple[float, float],
    steps: int,
    seed: int,
) -> tuple[Tensor, sp.coo_matrix]:
    """Inject a fifth of the nodes at a time at defective targets, and run Adam on the features."""
    generator = np.random.default_rng(seed)
    torch.manual_seed(seed)
    adjacency, x = to_scipy(graph), graph.x
    labels = model(x, normalized(adjacency)).argmax(1)
    n, at_a_time = x.size(0), max(1, int(nodes * 0.2))
    while x.size(0) < n + nodes:
        k = min(at_a_time, n + nodes - x.size(0))
        with torch.no_grad():
            current = F.softmax(model(x, normalized(adjacency)), dim=1)
        chosen = _defective(adjacency, labels, current, targets, k, edges, x.size(0), generator)
        adjacency = with_edges(adjacency, chosen, k)
        x = torch.cat([x, _fitted(model, adjacency, x, labels, targets, k, n, limits, steps)])
    return x, adjacency


def _defective(
    adjacency: sp.spmatrix,
    labels: Tensor,
    current: Tensor,
    targets: Tensor,
    k: int,
    edges: int,
    first_new: int,
    generator: np.random.Generator,
) -> list[tuple[int, int]]:
    """Return edges from the new nodes to the targets of highest score, spread over the classes."""
    degree = np.asarray(adjacency.sum(axis=0))[0] + 1.0
    scores = np.zeros(len(targets))
    for i, node in enumerate(targets):
        s = current[node][labels[node]] + 2
        scores[i] = 0.9 * s / degree[node] + 0.1 * s / np.sqrt(degree[node]) / np.sqrt(edges)
    best = list(scores.argsort()[-k * edges :])
    generator.shuffle(best)
    by_class: list[list[int]] = [[] for _ in range(int(labels.max()) + 1)]
    for i in best:
        by_class[int(labels[targets[i]])].append(i)
    used = np.zeros(len(by_class))
    chosen = []
    for new in range(k):
        for _ in range(edges):
            smallest, at = 1.0, 0
            for c, members in enumerate(by_class):
                if members and used[c] / len(members) < smallest:
                    smallest, at = used[c] / len(members), c
            if used[at] < len(by_class[at]):
                chosen.append((first_new + new, int(targets[by_class[at][int(used[at])]])))
                used[at] += 1
    return chosen


def _fitted(
    model: CoordinateGCN,
    adjacency: sp.spmatrix,
    x: Tensor,
    labels: Tensor,
    targets: Tensor,
    k: int,
    n: int,
    limits: tuple[float, float],
    steps: int,
) -> Tensor:
    """Fit the features of the newest nodes through a sine map; earlier ones stay unchanged."""
    high = limits[1]
    earlier = torch.tensor(np.arcsin((x[n:] / high).numpy()))
    tensor = normalized(adjacency)
    angle = torch.randn(k, x.size(1)).requires_grad_()
    optimizer = torch.optim.Adam([angle], lr=0.01)
    for _ in range(steps):
        every = torch.cat([x[:n], torch.sin(earlier) * high, torch.sin(angle) * high])
        logits = model(every, tensor)
        margin = 4 - F.cross_entropy(logits[:n][targets], labels[targets], reduction="none")
        loss = torch.mean(F.relu(margin) ** 2)
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        accuracy(logits[:n][targets], labels[targets])
    return (torch.sin(angle) * high).detach()
