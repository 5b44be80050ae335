from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from robust_diffusion import evaluate
from robust_diffusion.attacks import Budget
from robust_diffusion.errors import DataError
from robust_diffusion.evaluation import unit_test
from robust_diffusion.models import GCN
from tests.data.sources.test_benchmarks import ALONG, LAYOUTS, N

FLIPPED = {(0, 1), (3, 9)}


def defense_test(folder: Path) -> Data:
    LAYOUTS["defense test"].write(folder)
    return LAYOUTS["defense test"].read(folder, split=1)


def model() -> GCN:
    torch.manual_seed(0)
    return GCN(3, 8, out_channels=4)


def accuracy(edges: set[tuple[int, int]]) -> float:
    """The model's accuracy at the test nodes of a graph with these edges."""
    index = torch.tensor(sorted(edges)).T
    logits = model().eval()(torch.eye(3)[torch.arange(N) % 3], torch.cat([index, index.flip(0)], 1))
    return (logits.argmax(1) == torch.arange(N) % 4)[3:].double().mean().item()


def test_graph_files_flips_of_a_split(tmp_path: Path) -> None:
    graph = defense_test(tmp_path)
    clean = {tuple(edge) for edge in ALONG.tolist()}
    found = unit_test(model(), graph, graphs=tmp_path / "unit_test.npz")
    assert found[["made_on", "attack"]].to_numpy().tolist() == [["", "clean"], ["gcn", "budget 2"]]
    assert found["accuracy"].tolist() == [accuracy(clean), accuracy(clean ^ FLIPPED)]
    assert found["flips"].tolist() == [0, 2]
    with pd.option_context("display.max_columns", 1, "display.width", 20):
        assert all(column in repr(found).splitlines()[0] for column in found)
    graph.index_test = graph.index_test[1:]
    with pytest.raises(DataError, match=r"unit_test\.npz: [^\n]* 8 target nodes"):
        unit_test(model(), graph, graphs=tmp_path / "unit_test.npz")


def test_graph_files_of_deeprobust(tmp_path: Path) -> None:
    graph = defense_test(tmp_path)
    attacked = {tuple(edge) for edge in ALONG.tolist()} ^ FLIPPED
    rows, columns = np.array(sorted(attacked)).T
    half = sp.coo_matrix((np.ones(len(rows)), (rows, columns)), shape=(N, N)).tocsr()
    sp.save_npz(tmp_path / "mod_adj.npz", half + half.T)
    found = unit_test(model(), graph, graphs=tmp_path / "mod_adj.npz")
    assert found["made_on"].tolist() == ["", "mod_adj.npz"]
    assert found["accuracy"][1] == accuracy(attacked)
    np.savez(tmp_path / "unit_test.npz", of=np.ones(2))
    with pytest.raises(DataError, match=r"unit_test\.npz"):
        unit_test(model(), graph, graphs=tmp_path / "unit_test.npz")


def test_graph_files_of_another_graph(tmp_path: Path) -> None:
    graph = defense_test(tmp_path)
    report = evaluate(model(), graph, budget=Budget(edge_ratio=0.2), attacks="prbcd")
    report.save(tmp_path / "report")
    found = unit_test(model(), graph, graphs=tmp_path / "report")
    assert found["attack"].tolist() == ["clean", "modification"]
    assert found["flips"][1] == report["prbcd"].spent.added_edges + (
        report["prbcd"].spent.removed_edges
    )
    for key, value in (
        ("y", graph.y.flip(0)),
        ("x", graph.x + 1),
        ("edge_index", torch.tensor([[0, 5], [5, 0]])),
        ("edge_index", torch.randperm(N)[graph.edge_index]),
    ):
        other = graph.clone()
        other[key] = value
        with pytest.raises(DataError, match=r"that was attacked|other features"):
            unit_test(model(), other, graphs=tmp_path / "report")
