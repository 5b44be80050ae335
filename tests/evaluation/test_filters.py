"""Accuracy after a filter of outliers."""

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch_geometric.data import Data
from torch_geometric.utils import degree

from robust_diffusion import GCN, MLP, Budget, RobustnessReport, evaluate, filtered
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.filters import outlier_scores
from tests.drawn import FEATURES, NODES, drawn_data


def reported(model: torch.nn.Module) -> RobustnessReport:
    return evaluate(model, drawn_data(), budget=Budget(6, 12), attacks="random", nodes="all")


def test_what_is_cut_off_has_no_edge_and_is_still_classified() -> None:
    torch.manual_seed(0)
    model = GCN(FEATURES, 8, 7).train()
    report = reported(model)
    found = filtered(model, report, [0.05, 0.999], neighbors=10).set_index("attack")
    assert list(found.index) == ["clean", "random"]
    assert found["accuracy"].tolist() == [report.clean_accuracy, report["random"].accuracy]
    alone = evaluate(
        model, drawn_data(edge_index=torch.empty(2, 0, dtype=torch.long)),
        budget=Budget(1, 1), attacks="random", nodes="all",
    )  # fmt: skip
    assert found["after 99.9 %"].tolist() == [alone.clean_accuracy] * 2
    assert found.loc["random", "caught by 99.9 %"] == 1
    assert found["caught by 5 %"].isna().tolist() == [True, False]
    assert model.training


class Isolated(torch.nn.Module):
    """Class 1 for nodes without an edge, else 0."""

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return torch.eye(2)[(degree(edge_index[0], len(x)) == 0).long()]


@pytest.mark.parametrize(("share", "count"), [(0.07, 7), (0.14, 14), (0.29, 29), (0.001, 1)])
def test_a_share_is_rounded_up_in_decimals(share: float, count: int) -> None:
    n = 100
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(0))
    data = Data(x=x, edge_index=(1 - torch.eye(n)).nonzero().T, y=torch.ones(n, dtype=torch.long))
    options = {"attacks": "random", "nodes": "all", "progress": False}
    report = evaluate(Isolated(), data, budget=Budget(1, 1), **options)
    found = filtered(Isolated(), report, [share]).set_index("attack")
    assert found.loc["clean", f"after {100 * share:g} %"] == count / n


class OfThisGraph(torch.nn.Module):
    """A model with a number of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.position = torch.nn.Parameter(torch.zeros(NODES, FEATURES))
        self.gcn = GCN(FEATURES, 8, 7)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.gcn(x + self.position, edge_index)


def test_a_model_of_one_number_of_nodes_is_filtered_if_none_was_injected() -> None:
    model, budget = OfThisGraph(), Budget(edge_ratio=0.1)
    report = evaluate(model, drawn_data(), budget=budget, attacks="random_flip", progress=False)
    assert list(filtered(model, report, [0.1])["attack"]) == ["clean", "random_flip"]


def test_no_edge_is_missed_by_a_model_of_none() -> None:
    model = MLP(FEATURES, 8, 7)
    found = filtered(model, reported(model), [0.3])
    assert found["after 30 %"].equals(found["accuracy"])


def test_nodes_of_other_features_or_many_edges_are_outliers() -> None:
    data = drawn_data()
    odd = torch.arange(5)
    x = data.x.index_copy(0, odd, 5 + torch.randn(5, FEATURES))
    hub = torch.stack([torch.full((NODES - 1,), 7), torch.arange(NODES)[torch.arange(NODES) != 7]])
    edges = torch.cat([data.edge_index, hub, hub.flip(0)], 1).unique(dim=1)
    is_odd = torch.isin(torch.arange(NODES), torch.cat([odd, torch.tensor([7])]))
    assert roc_auc_score(is_odd, outlier_scores(x, edges, 30)) > 0.99


def test_a_model_of_half_precision_is_filtered() -> None:
    model = GCN(FEATURES, 8, 7).bfloat16()
    assert filtered(model, reported(model), [0.1])["accuracy"].notna().all()
    x = 1e4 * torch.randn(NODES, 64, generator=torch.Generator().manual_seed(0))
    scores = [outlier_scores(of, drawn_data().edge_index) for of in (x.half(), x.half().float())]
    assert torch.equal(*scores)


def test_filter_refuses_a_share_above_one() -> None:
    model = MLP(FEATURES, 8, 7)
    with pytest.raises(ConfigError, match="shares"):
        filtered(model, reported(model), [1.5])
