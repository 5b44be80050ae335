"""Attacks on one target at a time."""

from math import nan

import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks.base import Kind
from robust_diffusion.errors import AttackError, ConfigError
from robust_diffusion.evaluation import attack_each, right_by_edges
from robust_diffusion.models import GCN, MLP
from tests.attacks.contract import graph
from tests.graphs import without_type_checks


class Votes(nn.Module):
    """A node is of the class that most of its neighbours' features name."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        src, dst = edge_index
        sent = x[src] if edge_weight is None else edge_weight[:, None] * x[src]
        return x / 2 + torch.zeros_like(x).index_add(0, dst, sent)


@pytest.mark.parametrize(("kind", "needed"), [("modification", [4, 2]), ("injection", [4, 2])])
def test_attack_each_fewest_edges(kind: Kind, needed: list[int]) -> None:
    # Node 0 has three neighbours of its class, node 4 one; nodes 6 to 9 are of the other class.
    labels = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 1])
    pairs = torch.tensor([[0, 0, 0, 4, 6, 8], [1, 2, 3, 5, 7, 9]])
    x = torch.nn.functional.one_hot(labels, 2).float()
    data = Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], 1), y=labels)
    model = Votes()
    found = attack_each(model, data, 5, kind=kind, targets=[0, 4], progress=False)
    assert found["edges"].tolist() == needed
    assert found["degree"].tolist() == [3, 1]
    assert found["margin"].tolist() == [3.5, 1.5]
    fewer = attack_each(model, data, 3, kind=kind, targets=[0, 4], progress=False)
    assert fewer["edges"].isna().tolist() == [True, False]
    assert right_by_edges(found)["all"].tolist() == [1, 1, 0.5, 0.5, 0, 0]
    assert right_by_edges(found, "degree", 2).iloc[:, 0].tolist() == [1, 1, 0, 0, 0, 0]


def test_attack_each_mlp() -> None:
    data = graph()
    mlp = MLP(data.num_features, 8, out_channels=7)
    found = attack_each(mlp, data, 1, kind="injection", targets=range(20), progress=False)
    assert set(found["edges"].dropna()) == {0}
    assert found["edges"].isna().tolist() == (found["margin"] > 0).tolist()
    with pytest.raises(AttackError, match="edge weights"):
        attack_each(mlp, data, 1, targets=range(20), progress=False)


def test_attack_each_single_node() -> None:
    none, y = torch.empty(2, 0).long(), torch.zeros(1).long()
    alone = Data(x=torch.tensor([[1.0, 0.0]]), edge_index=none, y=y)
    assert attack_each(Votes(), alone, 1, targets=[0], progress=False)["edges"].isna().all()


def test_right_by_edges_curve() -> None:
    found = pd.DataFrame({"edges": [0, 1, None, 3]})
    tried = found.assign(max_edges=[3, 3, 4, 3])
    assert right_by_edges(tried).index.tolist() == [0, 1, 2, 3]
    for frame in (found, tried):
        assert right_by_edges(frame, max_edges=2).index.tolist() == [0, 1, 2]
    for frame, most in ((tried, 4), (found, None), (found, 0)):
        with pytest.raises(ConfigError, match=r"^max_edges=[^\n]*$"):
            right_by_edges(frame, max_edges=most)
    with pytest.raises(ConfigError, match=r"^found: [^\n]*$"):
        right_by_edges(tried[:0])


@pytest.mark.parametrize(
    "margin", [[2.0] * 4, [nan] * 4, [1.0, nan, 2.0, 3.0], [1.0] * 3 + [nan], [1.0] * 3 + [2.0]]
)
@pytest.mark.parametrize("target", range(4))
def test_right_by_edges_groups(margin: list[float], target: int) -> None:
    edges = [0 if i == target else None for i in range(4)]
    found = pd.DataFrame({"edges": edges, "margin": margin, "max_edges": 1})
    assert (right_by_edges(found, "margin", 2).iloc[0] < 1).any()


@pytest.mark.parametrize("kind", ["modification", "injection"])
def test_attack_each_half_precision(kind: Kind) -> None:
    model = GCN(graph().num_features, 8, out_channels=7).bfloat16()
    found = attack_each(model, graph(), 1, kind=kind, targets=range(3), progress=False)
    assert found["margin"].notna().all()


@pytest.mark.parametrize("wrong", [{"max_edges": 0}, {"kind": "both"}, {"targets": [10**6]}])
def test_attack_each_errors(wrong: dict[str, object]) -> None:
    with without_type_checks(), pytest.raises(ValueError, match=next(iter(wrong))):
        attack_each(GCN(8, 8, out_channels=7), graph(), **{"progress": False} | wrong)
