from typing import Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import degree

from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.normalize import arctan_normalize
from robust_diffusion.data.sources import citation_like_graph
from robust_diffusion.data.split import split_hash
from robust_diffusion.errors import ConfigError, DataError
from tests.drawn import drawn_data
from tests.graphs import without_type_checks


@pytest.fixture(scope="module")
def raw() -> Data:
    return citation_like_graph(num_nodes=120, num_edges=300, num_features=6)


def served(graph: Data, **options: Any) -> GraphDataModule:
    return GraphDataModule(graph.clone, name="small", **options)


def edges(graph: Data) -> set[tuple[int, int]]:
    return {(u, v) for u, v in graph.edge_index.T.tolist()}


def edges_among(graph: Data, nodes: torch.Tensor) -> set[tuple[int, int]]:
    """Edges among some nodes, named by their position in the list of nodes."""
    position = {node: i for i, node in enumerate(nodes.tolist())}
    return {(position[u], position[v]) for u, v in edges(graph) if {u, v} <= position.keys()}


def equal(a: Data, b: Data) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in list(a.keys()))


@pytest.mark.parametrize("stage", ["train", "val"])
def test_a_view_is_the_subgraph_of_its_nodes(raw: Data, stage: Any) -> None:
    view, nodes = served(raw).view(stage), raw.index_train
    if stage == "val":
        nodes = torch.cat([nodes, raw.index_val]).sort().values
    assert torch.equal(view.x, arctan_normalize(raw.x)[nodes])
    assert torch.equal(view.y, raw.y[nodes])
    assert torch.equal(view.n_id, nodes)
    assert edges(view) == edges_among(raw, nodes)
    assert torch.equal(nodes[view.mask], raw[f"index_{stage}"])


@pytest.mark.parametrize("difficulty", ["easy", "medium", "hard", "full"])
def test_the_test_view_scores_the_targets(raw: Data, difficulty: str) -> None:
    key = "index_test" if difficulty == "full" else f"index_test_{difficulty}"
    datamodule = served(raw, difficulty=difficulty)
    view = datamodule.view("test")
    assert torch.equal(view.x, arctan_normalize(raw.x))
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
    assert not equal(before.view("test"), after.view("test"))


def test_leaked_degrees(raw: Data) -> None:
    datamodule = served(raw, degree_leak=True)
    degrees = degree(raw.edge_index[0], raw.num_nodes) + 1
    seen = torch.cat([raw.index_train, raw.index_val]).sort().values
    assert torch.equal(datamodule.view("train").degree, degrees[raw.index_train])
    assert torch.equal(datamodule.view("val").degree, degrees[seen])
    assert "degree" not in datamodule.view("test")
    assert not any("degree" in served(raw).view(stage) for stage in ("train", "val", "test"))


def test_setup_asks_the_source_once(raw: Data) -> None:
    calls = []

    def source() -> Data:
        calls.append(1)
        return raw.clone()

    datamodule = GraphDataModule(source, name="small")
    assert not calls
    for stage in (None, "fit", "test"):
        datamodule.setup(stage)
    first = datamodule.graph
    assert datamodule.graph is first
    assert len(calls) == 1


def test_the_graph_of_a_source_stays_unchanged(raw: Data) -> None:
    before = raw.clone()
    first, second = (GraphDataModule(lambda: raw, name="small", degree_leak=True) for _ in range(2))
    assert equal(first.view("train"), second.view("train"))
    assert raw.keys() == before.keys()
    assert all(torch.equal(raw[key], before[key]) for key in ("x", "y", "edge_index"))


def test_attacked_graphs_are_served_after_the_clean_one(raw: Data) -> None:
    datamodule = served(raw)
    clean = datamodule.view("test")
    x = torch.cat([clean.x, torch.ones(2, 6)])
    new = torch.tensor([[120, 121, 0, 1], [0, 1, 120, 121]])
    edge_index = torch.cat([clean.edge_index, new], 1)
    datamodule.add_test_graph("b", x, edge_index)
    datamodule.add_test_graph("a", clean.x, clean.edge_index)
    assert datamodule.test_names == ["clean", "b", "a"]
    attacked = datamodule.test_graph("b")
    assert torch.equal(attacked.x, x)
    assert torch.equal(attacked.edge_index, edge_index)
    assert torch.equal(attacked.y[:120], clean.y)
    assert attacked.y.numel() == attacked.mask.numel() == 122
    assert torch.equal(attacked.mask.nonzero().flatten(), datamodule.target_nodes)
    assert equal(datamodule.test_graph("a"), clean)
    assert datamodule.test_graph("clean") is clean


@pytest.mark.parametrize("name", ["clean", "speit"])
def test_a_name_is_given_once(raw: Data, name: str) -> None:
    datamodule = served(raw)
    datamodule.add_test_graph("speit", raw.x, raw.edge_index)
    with pytest.raises(ConfigError, match=f"attack={name}"):
        datamodule.add_test_graph(name, raw.x, raw.edge_index)
    assert datamodule.test_names == ["clean", "speit"]


def test_loaders_yield_the_views_unbatched(raw: Data) -> None:
    datamodule = served(raw)
    datamodule.add_test_graph("speit", raw.x, raw.edge_index)
    loaders = {
        "train": [datamodule.train_dataloader()],
        "val": [datamodule.val_dataloader()],
        "test": datamodule.test_dataloader(),
    }
    assert len(loaders["test"]) == 2
    for stage, group in loaders.items():
        assert all(loader.batch_size is None and len(loader) == 1 for loader in group)
        (graph,) = group[0]
        assert isinstance(graph, Data)
        assert equal(graph, datamodule.view(stage))  # type: ignore[arg-type]
    (attacked,) = loaders["test"][1]
    assert equal(attacked, datamodule.test_graph("speit"))


def test_an_unknown_difficulty_is_refused(raw: Data) -> None:
    with without_type_checks(), pytest.raises(ConfigError, match="difficulty=extreme: unknown"):
        served(raw, difficulty="extreme")


def test_the_split_hash_is_of_the_parts(raw: Data) -> None:
    parts = {key: raw[key].numpy() for key in raw.to_dict() if key.startswith("index_")}
    assert served(raw).split_hash == split_hash(parts)
    assert served(raw, difficulty="full").split_hash == split_hash(parts)
    other = raw.clone()
    other.index_val = other.index_val[1:]
    assert served(other).split_hash != split_hash(parts)


@pytest.mark.parametrize("difficulty", ["easy", "medium", "hard"])
def test_a_difficulty_that_the_split_lacks_is_refused(raw: Data, difficulty: str) -> None:
    plain = raw.clone()
    for name in ("easy", "medium", "hard"):
        del plain[f"index_test_{name}"]
    with pytest.raises(ConfigError, match=f"difficulty={difficulty}: .*difficulty=full"):
        served(plain, difficulty=difficulty).setup()
    assert torch.equal(served(plain, difficulty="full").target_nodes, raw.index_test)


def test_a_graph_of_ones_own_is_served_as_it_is() -> None:
    data = drawn_data()
    datamodule = GraphDataModule.from_data(data)
    assert torch.equal(datamodule.graph.x, data.x)
    for stage in ("train", "val", "test"):
        view, mask = datamodule.view(stage), data[f"{stage}_mask"]  # type: ignore[arg-type]
        nodes = view.get("n_id", torch.arange(data.num_nodes))
        assert torch.equal(nodes[view.mask], mask.nonzero().squeeze(1))
    (clean,) = datamodule.predict_dataloader()
    assert torch.equal(clean.edge_index, data.edge_index)


def test_a_graph_of_ones_own_is_normalised_if_asked() -> None:
    data = drawn_data()
    datamodule = GraphDataModule.from_data(data, normalize="arctan")
    assert torch.equal(datamodule.graph.x, arctan_normalize(data.x))
    assert GraphDataModule.from_data(data).fingerprint != datamodule.fingerprint
    with without_type_checks(), pytest.raises(ConfigError, match="normalize=rows: unknown"):
        GraphDataModule.from_data(data, normalize="rows")  # type: ignore[arg-type]


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


def test_a_difficulty_of_masks_without_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"difficulty=easy: .*difficulty=full"):
        GraphDataModule.from_data(drawn_data(), difficulty="easy").setup()
