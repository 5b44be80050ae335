from typing import Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import degree

from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.normalize import feature_scale
from robust_diffusion.data.sources import citation_like_graph
from robust_diffusion.errors import ConfigError, DataError
from tests.drawn import drawn_data


@pytest.fixture(scope="module")
def raw() -> Data:
    return citation_like_graph(num_nodes=120, num_edges=300, num_features=6)


def served(graph: Data, **options: Any) -> GraphDataModule:
    return GraphDataModule(graph.clone, **{"name": "small"} | options)


def normalized(graph: Data) -> torch.Tensor:
    return feature_scale(graph.x).normalize(graph.x)


def equal(a: Data, b: Data) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in list(a.keys()))


@pytest.mark.parametrize("stage", ["train", "val"])
def test_a_view_is_the_subgraph_of_its_nodes(raw: Data, stage: Any) -> None:
    view, nodes = served(raw).view(stage), raw.index_train
    if stage == "val":
        nodes = torch.cat([nodes, raw.index_val]).sort().values
    position = {node: i for i, node in enumerate(nodes.tolist())}
    among = [(u, v) for u, v in raw.edge_index.T.tolist() if {u, v} <= position.keys()]
    assert torch.equal(view.x, normalized(raw)[nodes])
    assert torch.equal(view.y, raw.y[nodes])
    assert torch.equal(view.n_id, nodes)
    assert view.edge_index.T.tolist() == [[position[u], position[v]] for u, v in among]
    assert torch.equal(nodes[view.mask], raw[f"index_{stage}"])


@pytest.mark.parametrize("difficulty", ["easy", "medium", "hard", "full"])
def test_the_test_view_scores_the_targets(raw: Data, difficulty: str) -> None:
    key = "index_test" if difficulty == "full" else f"index_test_{difficulty}"
    datamodule = served(raw, difficulty=difficulty)
    view = datamodule.view("test")
    assert torch.equal(view.x, normalized(raw))
    assert torch.equal(view.edge_index, raw.edge_index)
    assert torch.equal(view.mask.nonzero().flatten(), raw[key])
    assert torch.equal(datamodule.target_nodes, raw[key])


@pytest.mark.parametrize("degree_leak", [False, True])
def test_edges_at_test_nodes_leak_by_degree(raw: Data, degree_leak: bool) -> None:
    changed = raw.clone()
    changed.edge_index = raw.edge_index[:, ~torch.isin(raw.edge_index, raw.index_test).any(0)]
    before, after = (served(graph, degree_leak=degree_leak) for graph in (raw, changed))
    for stage in ("train", "val"):
        assert equal(before.view(stage), after.view(stage)) is not degree_leak
        assert ("degree" in before.view(stage)) is degree_leak
    assert not equal(before.view("test"), after.view("test"))
    assert "degree" not in before.view("test")
    if degree_leak:
        degrees = degree(raw.edge_index[0], raw.num_nodes) + 1
        assert torch.equal(before.view("train").degree, degrees[raw.index_train])


def test_setup_asks_the_source_once_and_leaves_its_graph(raw: Data) -> None:
    before, calls = raw.clone(), []

    def source() -> Data:
        calls.append(1)
        return raw

    first, second = (GraphDataModule(source, name="small", degree_leak=True) for _ in range(2))
    assert not calls
    for stage in (None, "fit", "test"):
        first.setup(stage)
    assert first.graph is first.graph
    assert equal(first.view("train"), second.view("train"))
    assert len(calls) == 2
    assert all(torch.equal(raw[key], before[key]) for key in ("x", "y", "edge_index"))


def test_attacked_graphs_are_served_after_the_clean_one(raw: Data) -> None:
    datamodule = served(raw)
    clean = datamodule.view("test")
    x = torch.cat([clean.x, torch.ones(2, 6)])
    new = torch.tensor([[120, 121, 0, 1], [0, 1, 120, 121]])
    edge_index = torch.cat([clean.edge_index, new], 1)
    datamodule.add_test_graph("b", x, edge_index)
    datamodule.add_test_graph("a", clean.x, clean.edge_index)
    for name in ("a", "clean"):
        with pytest.raises(ConfigError, match=f"attack={name}"):
            datamodule.add_test_graph(name, raw.x, raw.edge_index)
    assert datamodule.test_names == ["clean", "b", "a"]
    attacked = datamodule.test_graph("b")
    assert torch.equal(attacked.x, x)
    assert torch.equal(attacked.edge_index, edge_index)
    assert torch.equal(attacked.y[:120], clean.y)
    assert attacked.y.numel() == attacked.mask.numel() == 122
    assert torch.equal(attacked.mask.nonzero().flatten(), datamodule.target_nodes)
    assert equal(datamodule.test_graph("a"), clean)
    loaders = [datamodule.train_dataloader(), datamodule.val_dataloader()]
    loaders += [*datamodule.test_dataloader(), datamodule.predict_dataloader()]
    views = [datamodule.view("train"), datamodule.view("val"), clean, attacked, clean, clean]
    for loader, view in zip(loaders, views, strict=True):
        (graph,) = loader
        assert equal(graph, view)


@pytest.mark.parametrize(
    "options", [{"difficulty": "extreme"}, {"name": 3}, {"name": "a/b"}, {"normalize": "rows"}]
)
def test_what_cannot_be_is_refused(raw: Data, options: dict[str, Any]) -> None:
    ((key, value),) = options.items()
    with pytest.raises(ConfigError, match=f"{key}={value}: "):
        served(raw, **options)


def test_a_difficulty_that_the_split_lacks_is_refused(raw: Data) -> None:
    plain = raw.clone()
    del plain.index_test_medium
    with pytest.raises(ConfigError, match=r"difficulty=medium: .*difficulty=full"):
        served(plain, difficulty="medium").setup()
    with pytest.raises(ConfigError, match=r"difficulty=easy: .*difficulty=full"):
        GraphDataModule.from_data(drawn_data(), difficulty="easy").setup()


def test_a_graph_of_ones_own_is_served_as_it_is_or_normalised() -> None:
    data = drawn_data()
    datamodule = GraphDataModule.from_data(data)
    assert torch.equal(datamodule.graph.x, data.x)
    assert torch.equal(datamodule.view("test").edge_index, data.edge_index)
    for stage in ("train", "val", "test"):
        view, mask = datamodule.view(stage), data[f"{stage}_mask"]  # type: ignore[arg-type]
        nodes = view.get("n_id", torch.arange(data.num_nodes))
        assert torch.equal(nodes[view.mask], mask.nonzero().squeeze(1))
    other = GraphDataModule.from_data(data, normalize="arctan")
    assert torch.equal(other.graph.x, normalized(data))
    assert other.fingerprint != datamodule.fingerprint


def test_a_graph_without_split_is_split_by_degree_if_a_difficulty_is_named() -> None:
    data = drawn_data(train_mask=None, val_mask=None, test_mask=None)
    with pytest.raises(DataError, match=r"data\.train_mask: missing"):
        GraphDataModule.from_data(data)
    degrees = degree(data.edge_index[0], data.num_nodes)
    easy, hard = (
        degrees[GraphDataModule.from_data(data, difficulty=name).target_nodes]
        for name in ("easy", "hard")
    )
    assert easy.max() <= hard.min()
    first, second = (
        GraphDataModule.from_data(data, difficulty="easy", split_seed=seed).split_hash
        for seed in (0, 1)
    )
    assert first != second
