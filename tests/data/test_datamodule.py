import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import degree, subgraph

from robust_diffusion.data import Clusters, GraphDataModule
from robust_diffusion.data.batching import _adjacency, metis_parts
from robust_diffusion.data.normalize import feature_scale
from robust_diffusion.data.sources import citation_like_graph
from robust_diffusion.data.split import degree_split, linear_margins, split_hash
from robust_diffusion.errors import ConfigError, DataError
from tests.drawn import drawn_data
from tests.graphs import without_type_checks


@pytest.fixture(scope="module")
def raw() -> Data:
    return citation_like_graph(num_nodes=120, num_edges=300, num_features=6)


def served(graph: Data, **options: Any) -> GraphDataModule:
    return GraphDataModule(graph.clone, **{"name": "small"} | options)


def scaled(x: Tensor) -> Tensor:
    return feature_scale(x).normalize(x)


def equal(a: Data, b: Data) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in list(a.keys()))


@pytest.mark.parametrize("stage", ["train", "val"])
def test_a_view_is_the_subgraph_of_its_nodes(raw: Data, stage: Any) -> None:
    view, nodes = served(raw).view(stage), raw.index_train
    if stage == "val":
        nodes = torch.cat([nodes, raw.index_val]).sort().values
    position = {node: i for i, node in enumerate(nodes.tolist())}
    among = [(u, v) for u, v in raw.edge_index.T.tolist() if {u, v} <= position.keys()]
    assert torch.equal(view.x, scaled(raw.x)[nodes])
    assert torch.equal(view.y, raw.y[nodes])
    assert torch.equal(view.n_id, nodes)
    assert view.edge_index.T.tolist() == [[position[u], position[v]] for u, v in among]
    assert torch.equal(nodes[view.mask], raw[f"index_{stage}"])


def test_views_are_cut_when_they_are_needed(raw: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    datamodule = served(raw)
    datamodule.setup()
    monkeypatch.setattr("robust_diffusion.data.datamodule.subgraph", pytest.fail)
    assert datamodule.view("test").x is datamodule.graph.x
    monkeypatch.undo()
    assert datamodule.view("train") is datamodule.view("train")


@pytest.mark.parametrize("difficulty", ["easy", "medium", "hard", "full"])
def test_the_test_view_scores_the_targets(raw: Data, difficulty: str) -> None:
    key = "index_test" if difficulty == "full" else f"index_test_{difficulty}"
    datamodule = served(raw, difficulty=difficulty)
    view = datamodule.view("test")
    assert torch.equal(view.x, scaled(raw.x))
    assert torch.equal(view.edge_index, raw.edge_index)
    assert torch.equal(view.mask.nonzero().flatten(), raw[key])
    assert torch.equal(datamodule.target_nodes, raw[key])


def test_a_transductive_view_is_the_whole_graph_and_scores_its_own_nodes(raw: Data) -> None:
    datamodule = served(raw, transductive=True, normalize=None)
    for stage in ("train", "val", "test"):
        view = datamodule.view(stage)
        assert torch.equal(view.x, raw.x)
        assert torch.equal(view.edge_index, raw.edge_index)
        part = f"index_{stage}" if stage != "test" else "index_test_easy"
        assert torch.equal(view.mask.nonzero().flatten(), raw[part])
    assert datamodule.fingerprint == served(raw, normalize=None).fingerprint + "-transductive"
    for options in ({"edge_values": "ids"}, {"batching": Clusters(2, 1)}):
        with pytest.raises(ConfigError, match=r"^data\.transductive=true: [^\n]*$"):
            served(raw, transductive=True, **options)


def test_words_as_frequencies_sum_to_one(raw: Data) -> None:
    graph = raw.clone()
    graph.x = (raw.x > 0).float()
    graph.x[3] = 0
    x = served(graph, normalize="frequencies").graph.x
    torch.testing.assert_close(x * graph.x.sum(1, keepdim=True), graph.x)
    with pytest.raises(DataError, match=r"^dataset=small: features: [^\n]*frequencies"):
        served(raw, normalize="frequencies").setup()


@pytest.mark.parametrize("transductive", [False, True])
def test_a_poisoned_graph_is_served_at_every_stage(raw: Data, *, transductive: bool) -> None:
    clean, changed = served(raw, transductive=transductive), raw.clone()
    changed.edge_index = raw.edge_index[:, raw.edge_index.sum(0) % 3 > 0]
    before, x = clean.fingerprint, scaled(raw.x)
    poisoned = clean.poisoned(x, changed.edge_index)
    for stage in ("train", "val", "test"):
        assert equal(poisoned.view(stage), served(changed, transductive=transductive).view(stage))
    assert poisoned.feature_scale == clean.feature_scale
    assert clean.fingerprint == before != poisoned.fingerprint


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


def test_each_loader_yields_its_view(raw: Data) -> None:
    datamodule = served(raw)
    for stage, name in (("train", "train"), ("val", "val"), ("test", "test"), ("test", "predict")):
        (graph,) = getattr(datamodule, f"{name}_dataloader")()
        assert equal(graph, datamodule.view(stage))


@pytest.mark.parametrize("options", [{"name": 3}, {"name": "a/b"}, {"normalize": "rows"}])
def test_what_cannot_be_is_refused(raw: Data, options: dict[str, Any]) -> None:
    ((key, value),) = options.items()
    with pytest.raises(ConfigError, match=f"{key}={value}: "):
        served(raw, **options)
    with pytest.raises(ConfigError, match="edge_values=ids"):
        served(raw, batching=Clusters(4, 2), edge_values="ids")


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
    assert torch.equal(other.graph.x, scaled(data.x))
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


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def drawn(*size: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(size, dtype=dtype, generator=torch.Generator().manual_seed(0))


@DTYPES
def test_equals_the_formula_in_float64_and_leaves_its_input(dtype: torch.dtype) -> None:
    x = drawn(40, 7, dtype=torch.float32).to(dtype) * 5 + 100
    before, exact, scale = x.clone(), x.numpy().astype(np.float64), feature_scale(x)
    expected = 2 / np.pi * np.arctan((exact - exact.mean()) / exact.std())
    result = scale.normalize(x)
    assert result.dtype == dtype
    np.testing.assert_allclose(result.numpy(), expected, rtol=torch.finfo(dtype).eps * 2, atol=0)
    assert scale.mean == pytest.approx(exact.mean(), rel=1e-14)
    assert scale.std == pytest.approx(exact.std(), rel=1e-12)
    assert torch.equal(x, before)


@DTYPES
@pytest.mark.parametrize("value", [0.0, 0.1, -7.3])
def test_constant_features_are_refused(value: float, dtype: torch.dtype) -> None:
    with pytest.raises(DataError, match="features"):
        feature_scale(torch.full((1000, 302), value, dtype=dtype))


def test_the_bits_are_those_of_the_first_release() -> None:
    x = torch.tensor([[0.0, 1.0, -2.5, 0.0], [3.25, 0.0, 0.0, 0.1], [0.0, -0.7, 12.0, 1e-3]])
    assert scaled(x).view(torch.int32).tolist() == [
        [-1102757813, -1131515084, -1090390971, -1102757813],
        [1051943489, -1102757813, -1102757813, -1103875492],
        [-1102757813, -1097195532, 1062026372, -1102768903],
    ]


TESTS = ("test_easy", "test_medium", "test_hard")


@pytest.mark.parametrize("n", [20, 999])
def test_every_node_is_in_one_part_and_degrees_grow_with_the_difficulty(n: int) -> None:
    degree = np.random.default_rng(n).geometric(0.25, n)
    splits = degree_split(degree)
    assert [splits[name].size for name in TESTS] == [n // 10] * 3
    assert splits["train"].size == int(0.6 * n)
    assert splits["val"].size > 0
    parts = np.concatenate([splits["train"], splits["val"], splits["test"]])
    assert sorted(parts) == list(range(n))
    assert sorted(np.concatenate([splits[name] for name in TESTS])) == splits["test"].tolist()
    for index in splits.values():
        assert index.dtype == np.int64
        assert (np.diff(index) > 0).all()
    easy, medium, hard = (degree[splits[name]] for name in TESTS)
    assert easy.max() <= medium.min()
    assert medium.max() <= hard.min()


FIXED = np.array([5, 1, 1, 2, 8, 3, 3, 3, 1, 0, 2, 2, 9, 4, 4, 1, 1, 6, 2, 7, 2, 2, 3, 1, 5])


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64])
@pytest.mark.parametrize(("seed", "expected"), [(0, "8885b61be2810fe4"), (1, "56563d3e8e607247")])
def test_the_split_is_the_same_on_every_platform(dtype: type, seed: int, expected: str) -> None:
    assert split_hash(degree_split(FIXED.astype(dtype), seed)) == expected


Make = Callable[..., Any]


@pytest.fixture
def view(make_datamodule: Make) -> Data:
    view: Data = make_datamodule().view("train")
    return view


@pytest.mark.parametrize(("parts", "key"), [(4, "parts_per_batch=5"), (500, "num_parts=500")])
def test_parts_that_do_not_fit_are_refused(view: Data, parts: int, key: str) -> None:
    with pytest.raises(ConfigError, match=f"^batching.{key}: "):
        Clusters(parts, parts_per_batch=5).loader(view)


def test_without_pymetis_the_remedy_is_named(view: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ConfigError, match="pip install"):
        Clusters(4, 2).loader(view)


@pytest.mark.parametrize(("parts", "per_batch", "batches"), [(8, 2, 4), (9, 4, 3), (4, 4, 1)])
def test_an_epoch_has_each_node_once(view: Data, parts: int, per_batch: int, batches: int) -> None:
    batching = Clusters(parts, per_batch)
    found = list(batching.loader(view))
    assert len(found) == batches
    rows = torch.cat([batch.x for batch in found])
    assert torch.equal(rows.sort(0).values, view.x.sort(0).values)
    if batches == 1:
        assert torch.equal(found[0].edge_index, view.edge_index)


def test_joined_parts_are_the_induced_subgraph(view: Data) -> None:
    view.degree = torch.arange(view.num_nodes, dtype=torch.float)
    membership = metis_parts(_adjacency(view), 6, seed=0)
    batch = Clusters(6, 2).loader(view).collate_fn([4, 1])  # type: ignore[misc]
    nodes = torch.from_numpy(np.flatnonzero(np.isin(membership, [1, 4])))
    edges, _ = subgraph(nodes, view.edge_index, relabel_nodes=True, num_nodes=view.num_nodes)
    assert sorted(edges.T.tolist()) == sorted(batch.edge_index.T.tolist())
    for key in ("x", "y", "mask", "degree"):
        assert torch.equal(batch[key], view[key][nodes])


def targeted(difficulty: str) -> GraphDataModule:
    return GraphDataModule.from_data(drawn_data(), difficulty=difficulty)


def test_random_targets_are_drawn_from_their_seed_alone() -> None:
    found = [targeted(f"random:9:{seed}").target_nodes for seed in (0, 0, 1)]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert torch.equal(targeted("random:9").target_nodes, found[0])
    for nodes in found:
        assert len(nodes) == 9
        assert torch.isin(nodes, targeted("full").target_nodes).all()


def test_thirds_by_margin_hold_every_test_node_once_in_order() -> None:
    every = targeted("full")
    of = linear_margins(every.graph)
    thirds = [targeted(f"margin:{third}").target_nodes for third in ("low", "middle", "high")]
    assert torch.equal(torch.cat(thirds).sort().values, every.target_nodes)
    assert of[thirds[0]].max() <= of[thirds[1]].min() <= of[thirds[1]].max() <= of[thirds[2]].min()


def test_margins_are_those_of_ridge_regression_on_twice_propagated_features() -> None:
    graph = targeted("full").graph
    n, train = graph.num_nodes, graph.index_train.numpy()
    dense = torch.zeros(n, n, dtype=torch.double)
    dense[graph.edge_index[1], graph.edge_index[0]] = 1
    dense += torch.eye(n)
    scale = dense.sum(1).rsqrt()
    x = torch.cat([graph.x.double(), torch.ones(n, 1)], 1)
    x = (torch.linalg.matrix_power(scale[:, None] * dense * scale, 2) @ x).numpy()
    model = Ridge(alpha=1.0, fit_intercept=False).fit(x[train], np.eye(7)[graph.y[train]])
    scores = model.predict(x)
    own = scores[range(n), graph.y]
    scores[range(n), graph.y] = -np.inf
    assert linear_margins(graph).numpy() == pytest.approx(own - scores.max(1), abs=1e-9)


@pytest.mark.parametrize("name", ["extreme", "margin:", "nodes.txt", "random:0", "random:9999", 3])
def test_what_names_no_test_nodes_is_refused(name: Any) -> None:
    with without_type_checks(), pytest.raises(ConfigError, match=f"difficulty={name}: "):
        targeted(name).setup()
