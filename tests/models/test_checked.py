from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn.models import GCN, LINKX

from robust_diffusion.errors import ConfigError
from robust_diffusion.models import MLP
from robust_diffusion.models.checked import check_model
from tests.drawn import FEATURES, NODES, drawn_data

DATA = drawn_data()


class Wrong(nn.Module):
    """Returns what it is told to."""

    def __init__(self, result: Callable[..., Any]) -> None:
        super().__init__()
        self.result = result
        self.kept: Any = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.result(x)


class KeepsFirst(Wrong):
    """Its first graph is the only one that it sees."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        if self.kept is None:
            self.kept = edge_index
        return self.result(x, self.kept)


class KeepsSums(Wrong):
    """Neighbours' features are summed up once, as in SGC."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        if self.kept is None:
            self.kept = self.result(x, edge_index)
        return self.kept[: x.size(0)]


def neighbours(x: Tensor, edge_index: Tensor) -> Tensor:
    return x.index_add(0, edge_index[1], x[edge_index[0]])


def test_a_model_is_tried_in_eval_mode_and_left_as_it_was() -> None:
    model = GCN(FEATURES, 8, 2, 7, dropout=0.5)
    before = torch.get_rng_state()
    first, second = (check_model(model, DATA.x, DATA.edge_index, 7).logits for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    "model",
    [
        lambda x, edge_index: x,
        GCN,
        GCN(FEATURES, 8, 2, 7, cached=True),
        GCN(FEATURES + 1, 8, 2, 7),
        nn.Linear(FEATURES, 7),
        *[
            Wrong(result)
            for result in (
                lambda x: (x, x),
                lambda x: x[1:],
                lambda x: x.argmax(1),
                lambda x: x.long(),
                lambda x: x[:, :3],
                lambda x: x / 0,
            )
        ],
        KeepsFirst(neighbours),
        KeepsSums(neighbours),
        LINKX(NODES, FEATURES, 8, 7, 2),
        Wrong(lambda x: x * torch.ones(NODES, 1)),
    ],
)
def test_what_is_no_classifier_of_the_graph_is_refused_in_one_line(model: Any) -> None:
    with pytest.raises(ConfigError, match=r"^surrogates\[a\]: [^\n]*$"):
        check_model(model, DATA.x, DATA.edge_index, 7, name="surrogates[a]")


def test_a_model_of_a_fixed_number_of_nodes_takes_flips() -> None:
    check_model(LINKX(NODES, FEATURES, 8, 7, 2), DATA.x, DATA.edge_index, 7, grows=False)


def test_what_a_model_does_is_seen() -> None:
    ring = torch.stack([torch.arange(NODES), torch.arange(NODES).roll(1)])
    ring = torch.cat([ring, ring.flip(0)], 1)  # on which other edges are the same
    for edges in (DATA.edge_index, ring):
        tried = check_model(GCN(FEATURES, 8, 2, 7), DATA.x, edges, 7)
        assert tried.sees_edges
        assert not tried.writes_in_place
        assert not tried.gives_probabilities
    assert not check_model(MLP(FEATURES, 8, 7), DATA.x, DATA.edge_index, 7).sees_edges
    assert check_model(Wrong(lambda x: x.softmax(1)), DATA.x, ring, 7).gives_probabilities
    before = DATA.x.clone()
    assert check_model(Wrong(lambda x: x.relu_()), DATA.x, ring, 7).writes_in_place
    assert torch.equal(DATA.x, before)
