import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.attacks import PGD, SPEIT, Budget
from robust_diffusion.models import GRBModel
from tests import oracles
from tests.attacks.contract import graph, run
from tests.graphs import CHANNELS, NODES, random_edges, random_signal

CLASSES = 3


class Convolution(nn.Module):
    """A model of GRB's calling convention: features and a sparse matrix, or a list of two."""

    def __init__(self, in_channels: int = CHANNELS) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(in_channels, CLASSES)

    def forward(self, x: Tensor, adj: Tensor | list[Tensor], dropout: float = 0.0) -> Tensor:
        h = self.linear(x)
        if isinstance(adj, list):
            return torch.spmm(adj[0], h) - torch.spmm(adj[1], h)
        assert adj.layout == torch.sparse_coo
        return torch.spmm(adj, h)


def dense(normalization: str, edge_index: Tensor, weight: Tensor) -> Tensor:
    """GRB's normalisation, written on n x n matrices."""
    if normalization == "none":
        return oracles.adjacency(edge_index, weight, NODES)
    a = oracles.adjacency(edge_index, weight, NODES, self_loops=True)
    degree = a.sum(1)
    symmetric = degree.rsqrt().diag() @ a @ degree.rsqrt().diag()
    inverse = degree.reciprocal().diag() @ a
    return {
        "symmetric": symmetric,
        "mean": inverse,
        "both": symmetric - inverse @ degree.reciprocal().diag(),
    }[normalization]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("normalization", ["symmetric", "mean", "both", "none"])
def test_the_matrix_is_the_one_that_grb_passes(normalization: str, weighted: bool) -> None:
    edge_index, weight = random_edges()  # directed: rows are where edges arrive
    inner = Convolution().double()
    model = GRBModel(inner, normalization=normalization)
    given = (weight,) if weighted else ()
    values = weight if weighted else torch.ones_like(weight)
    expected = dense(normalization, edge_index, values) @ inner.linear(random_signal())
    torch.testing.assert_close(model(random_signal(), edge_index, *given), expected)


@pytest.mark.parametrize("normalization", ["symmetric", "mean", "both", "none"])
def test_logits_are_differentiable_in_features_and_weights(normalization: str) -> None:
    model = GRBModel(Convolution().double(), normalization=normalization)
    edge_index, weight = random_edges(symmetric=True)
    given = (random_signal().requires_grad_(), weight.requires_grad_())
    assert torch.autograd.gradcheck(lambda x, w: model(x, edge_index, w), given)


def test_attacks_take_it() -> None:
    model = GRBModel(Convolution(graph().num_features))
    targets, budget = graph().index_test, Budget(6, 10, (-0.94, 0.94))
    for attack in (SPEIT(num_steps=40, learning_rate=0.1), PGD(num_steps=40, step_size=0.1)):
        perturbed = run(attack, model=model, targets=targets, budget=budget)
        before = model(graph().x, graph().edge_index).argmax(1)[targets]
        after = model(perturbed.x, perturbed.edge_index).argmax(1)[targets]
        assert (before != after).any()
