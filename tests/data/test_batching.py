import builtins
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from robust_diffusion.data import Clusters, FullBatch
from robust_diffusion.data.batching import Parts, adjacency_of, metis_parts
from robust_diffusion.errors import ConfigError

Make = Callable[..., Any]


@pytest.fixture
def view(make_datamodule: Make) -> Data:
    view: Data = make_datamodule().view("train")
    return view


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_parts": 1}, "batching.num_parts=1: must be a whole number of at least 2"),
        ({"parts_per_batch": 0}, "batching.parts_per_batch=0: must be a whole number"),
        ({"seed": -1}, "batching.seed=-1: must be a whole number"),
        (
            {"num_parts": 4, "parts_per_batch": 5},
            "batching.parts_per_batch=5: there are only batching.num_parts=4",
        ),
    ],
)
def test_a_number_out_of_range_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(words)}"):
        Clusters(**options)


def test_more_parts_than_nodes_are_refused(view: Data) -> None:
    with pytest.raises(ConfigError, match=rf"num_parts=500: .*only {view.num_nodes} nodes"):
        Clusters(500, 5).loader(view)


def test_without_pymetis_the_remedy_is_named(view: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name == "pymetis":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match=r"needs pymetis; pip install 'robust-diffusion\[clus"):
        Clusters(4, 2).loader(view)


def test_a_full_batch_is_the_view_itself(view: Data) -> None:
    (batch,) = FullBatch().loader(view)
    assert batch is view


@pytest.mark.parametrize(("parts", "per_batch", "batches"), [(8, 2, 4), (9, 4, 3), (4, 4, 1)])
def test_an_epoch_has_each_node_once(view: Data, parts: int, per_batch: int, batches: int) -> None:
    batching = Clusters(parts, per_batch)
    found = list(batching.loader(view))
    assert len(found) == batching.batches_per_epoch == batches
    assert sum(batch.num_nodes for batch in found) == view.num_nodes
    assert view.x is not None
    rows = torch.cat([batch.x for batch in found])
    assert torch.equal(rows.sort(0).values, view.x.sort(0).values)


def test_parts_are_drawn_anew_by_the_training_s_seed(view: Data) -> None:
    loader = Clusters(10, 2).loader(view)
    torch.manual_seed(3)
    first, second = ([batch.x.tolist() for batch in loader] for _ in range(2))
    torch.manual_seed(3)
    again = [batch.x.tolist() for batch in loader]
    assert first == again != second


def test_joined_parts_are_the_induced_subgraph(view: Data) -> None:
    view.degree = torch.arange(view.num_nodes, dtype=torch.float)
    membership = metis_parts(view, 6, seed=0)
    batch = Parts(view, membership).joined([4, 1])
    nodes = torch.from_numpy(np.flatnonzero(np.isin(membership, [1, 4])))
    assert view.edge_index is not None
    edges, _ = subgraph(nodes, view.edge_index, relabel_nodes=True, num_nodes=view.num_nodes)
    assert {tuple(edge) for edge in edges.T.tolist()} == {
        tuple(edge) for edge in batch.edge_index.T.tolist()
    }
    for key in ("x", "y", "mask", "degree"):
        assert torch.equal(batch[key], view[key][nodes])


def test_all_parts_joined_are_the_whole_graph(view: Data) -> None:
    (batch,) = Clusters(5, 5).loader(view)
    assert torch.equal(batch.x, view.x)
    assert torch.equal(batch.edge_index, view.edge_index)


def test_metis_cuts_few_edges_of_two_cliques() -> None:
    ring = torch.arange(20)
    # Two cliques of ten, numbered by turns, with one edge between them.
    pairs = [(u, v) for u in range(20) for v in range(20) if u != v and u % 2 == v % 2]
    edges = torch.tensor([*pairs, (0, 1), (1, 0), (3, 3)]).T
    view = Data(x=ring[:, None].float(), edge_index=edges)
    membership = metis_parts(view, 2, seed=0)
    assert len(set(membership[::2])) == len(set(membership[1::2])) == 1
    assert membership[0] != membership[1]
    assert adjacency_of(view).trace() == 0


def test_an_empty_part_is_none() -> None:
    view = Data(
        x=torch.eye(4),
        y=torch.arange(4),
        mask=torch.ones(4, dtype=torch.bool),
        edge_index=torch.tensor([[0, 1], [1, 0]]),
    )
    parts = Parts(view, np.array([0, 2, 2, 0]))
    assert len(parts) == 2
    assert [parts.joined([part]).y.tolist() for part in range(2)] == [[0, 3], [1, 2]]


def test_batches_tell_trainings_apart(make_datamodule: Make) -> None:
    def fingerprint(batching: Any) -> str:
        found: str = make_datamodule(batching=batching).fingerprint
        return found

    whole = fingerprint(None)
    assert whole == fingerprint(FullBatch())
    found = {fingerprint(Clusters(*numbers)) for numbers in [(4, 2), (4, 1), (5, 2), (4, 2, 1)]}
    assert len(found | {whole}) == 5


def test_edge_numbers_of_the_whole_graph_do_not_go_with_clusters(make_datamodule: Make) -> None:
    with pytest.raises(ConfigError, match=r"batching=clusters, data.edge_values=ids: .*use batch"):
        make_datamodule(batching=Clusters(4, 2), edge_values="ids")


def test_validation_and_tests_are_of_the_whole_graph(make_datamodule: Make) -> None:
    datamodule = make_datamodule(batching=Clusters(4, 1))
    assert len(list(datamodule.train_dataloader())) == 4
    assert datamodule.train_dataloader() is datamodule.train_dataloader()  # cut once
    assert [batch.num_nodes for batch in datamodule.val_dataloader()] == [
        datamodule.view("val").num_nodes
    ]
    (clean,) = datamodule.test_dataloader()
    assert next(iter(clean)).num_nodes == datamodule.graph.num_nodes
