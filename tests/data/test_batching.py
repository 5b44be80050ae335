import builtins
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from robust_diffusion.data import Clusters
from robust_diffusion.data.batching import _adjacency, metis_parts
from robust_diffusion.errors import ConfigError

Make = Callable[..., Any]


@pytest.fixture
def view(make_datamodule: Make) -> Data:
    view: Data = make_datamodule().view("train")
    return view


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"num_parts": 1}, "num_parts=1"),
        ({"parts_per_batch": 0}, "parts_per_batch=0"),
        ({"seed": -1}, "seed=-1"),
        ({"num_parts": 4, "parts_per_batch": 5}, "parts_per_batch=5"),
        ({"num_parts": 500, "parts_per_batch": 5}, "num_parts=500"),
    ],
)
def test_numbers_out_of_range_are_refused(view: Data, options: dict[str, int], key: str) -> None:
    with pytest.raises(ConfigError, match=f"^batching.{key}: "):
        Clusters(**options).loader(view)


def test_without_pymetis_the_remedy_is_named(view: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name == "pymetis":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match="pip install"):
        Clusters(4, 2).loader(view)


@pytest.mark.parametrize(("parts", "per_batch", "batches"), [(8, 2, 4), (9, 4, 3), (4, 4, 1)])
def test_an_epoch_has_each_node_once(view: Data, parts: int, per_batch: int, batches: int) -> None:
    batching = Clusters(parts, per_batch)
    found = list(batching.loader(view))
    assert len(found) == batching.batches_per_epoch == batches
    assert view.x is not None
    rows = torch.cat([batch.x for batch in found])
    assert torch.equal(rows.sort(0).values, view.x.sort(0).values)
    if batches == 1:
        assert torch.equal(found[0].edge_index, view.edge_index)


def test_parts_are_drawn_anew_by_the_training_s_seed(view: Data) -> None:
    loader = Clusters(10, 2).loader(view)
    torch.manual_seed(3)
    first, second = ([batch.x.tolist() for batch in loader] for _ in range(2))
    torch.manual_seed(3)
    again = [batch.x.tolist() for batch in loader]
    assert first == again != second


def test_joined_parts_are_the_induced_subgraph(view: Data) -> None:
    view.degree = torch.arange(view.num_nodes, dtype=torch.float)
    membership = metis_parts(_adjacency(view), 6, seed=0)
    batch = Clusters(6, 2).loader(view).collate_fn([4, 1])  # type: ignore[misc]
    nodes = torch.from_numpy(np.flatnonzero(np.isin(membership, [1, 4])))
    assert view.edge_index is not None
    edges, _ = subgraph(nodes, view.edge_index, relabel_nodes=True, num_nodes=view.num_nodes)
    assert sorted(edges.T.tolist()) == sorted(batch.edge_index.T.tolist())
    for key in ("x", "y", "mask", "degree"):
        assert torch.equal(batch[key], view[key][nodes])


def test_an_empty_part_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    mask, edges = torch.ones(4, dtype=torch.bool), torch.tensor([[0, 1], [1, 0]])
    view = Data(x=torch.eye(4), y=torch.arange(4), mask=mask, edge_index=edges)
    found = np.array([0, 2, 2, 0])
    monkeypatch.setattr("robust_diffusion.data.batching.metis_parts", lambda *_: found)
    batches = [batch.y.tolist() for batch in Clusters(3, 1).loader(view)]
    assert sorted(batches) == [[0, 3], [1, 2]]


def test_batches_tell_trainings_apart(make_datamodule: Make) -> None:
    given = [None, *(Clusters(*of) for of in [(4, 2), (4, 1), (5, 2), (4, 2, 1)])]
    assert len({make_datamodule(batching=batching).fingerprint for batching in given}) == 5
    with pytest.raises(ConfigError, match=r"data.edge_values=ids"):
        make_datamodule(batching=Clusters(4, 2), edge_values="ids")


def test_only_the_training_is_cut(make_datamodule: Make) -> None:
    datamodule = make_datamodule(batching=Clusters(4, 1))
    assert len(list(datamodule.train_dataloader())) == 4
    assert datamodule.train_dataloader() is datamodule.train_dataloader()  # cut once
    (val,) = datamodule.val_dataloader()
    assert val is datamodule.view("val")
    (clean,) = datamodule.test_dataloader()
    assert next(iter(clean)).num_nodes == datamodule.graph.num_nodes
