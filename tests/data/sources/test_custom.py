from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from hypothesis.strategies import SearchStrategy
from numpy.typing import NDArray
from torch_geometric.data import Data

from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.normalize import feature_scale
from robust_diffusion.data.sources import load_custom
from robust_diffusion.data.sources.pyg import NAMES
from robust_diffusion.data.split import degree_split
from robust_diffusion.data.validate import SPLITS, build_graph
from robust_diffusion.errors import ConfigError, DataError
from tests.data.files import (
    EDGES,
    NUM_NODES,
    Bomb,
    csr_parts,
    raw_graph,
    refusal,
    splits,
    symmetric,
    write_grb,
)

Arrays = dict[str, Any]
BOTH = np.array(sorted(EDGES + [(v, u) for u, v in EDGES])).T


def plain(**changes: Any) -> Arrays:
    """The ring with an edge list and no split."""
    raw = raw_graph()
    return {"edge_index": BOTH, "features": raw["features"], "labels": raw["labels"]} | changes


def indices() -> Arrays:
    return {f"index_{name}": index for name, index in splits().items()}


def masks() -> Arrays:
    names = ("train", "val", "test")
    return {f"{name}_mask": np.isin(np.arange(NUM_NODES), splits()[name]) for name in names}


def without(arrays: Arrays, *keys: str) -> Arrays:
    return {key: value for key, value in arrays.items() if key not in keys}


def write(folder: Path, arrays: Arrays, suffix: str = ".npz") -> Path:
    path = folder / f"mine{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)
    else:
        tensors = {
            k: torch.as_tensor(v) if isinstance(v, np.ndarray) else v for k, v in arrays.items()
        }
        torch.save(tensors, path)
    return path


def same_graph(a: Data, b: Data) -> bool:
    return all(torch.equal(a[key], b[key]) for key in ("x", "y", "edge_index"))


RING = build_graph(**raw_graph(), where="ring")
LAYOUTS: dict[str, Arrays] = {
    "edge list": plain(),
    "one direction": plain(edge_index=np.array(EDGES).T),
    "repeated edges": plain(edge_index=np.concatenate([BOTH, BOTH], 1)),
    "int32 edges": plain(edge_index=BOTH.astype(np.int32)),
    "unsigned edges": plain(edge_index=BOTH.astype(np.uint8)),
    "self-loops": plain(edge_index=np.concatenate([BOTH, [[3], [3]]], 1)),
    "PyG's names": {"edge_index": BOTH, "x": raw_graph()["features"], "y": raw_graph()["labels"]},
    "CSR": without(plain(), "edge_index") | csr_parts(symmetric(EDGES), "adj"),
    "edges of weight 0": plain(
        edge_index=np.concatenate([BOTH, [[0], [9]]], 1),
        edge_weight=np.append(np.full((BOTH.shape[1], 1), 0.3), 0),
    ),
    "more than needed": plain(name=np.arange(3)),
}


@pytest.mark.parametrize("suffix", [".npz", ".pt"])
@pytest.mark.parametrize("arrays", LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_gives_the_graph_split_by_degree(
    tmp_path: Path, arrays: Arrays, suffix: str
) -> None:
    graph = load_custom(str(write(tmp_path, arrays, suffix)), split_seed=2)
    assert same_graph(graph, RING)
    assert "split_drawn" in graph
    for name, index in degree_split(np.diff(symmetric(EDGES).indptr), 2).items():
        assert graph[f"index_{name}"].tolist() == index.tolist()


def test_a_folder_in_grb_layout_keeps_doubles_where_it_must(tmp_path: Path) -> None:
    folder = write_grb(tmp_path)
    graph = load_custom(folder)
    assert same_graph(graph, RING)
    assert graph.index_test_hard.tolist() == [17, 18, 19]
    assert "sha256.json" not in {file.name for file in folder.iterdir()}
    np.savez(folder / "features.npz", data=1.7e9 + np.arange(20.0)[:, None])
    assert load_custom(folder).x.dtype == torch.float64


@pytest.mark.parametrize("suffix", [".npz", ".pt"])
@pytest.mark.parametrize("parts", [SPLITS, SPLITS[:3]], ids=["all", "three"])
@pytest.mark.parametrize("pattern", NAMES)
def test_a_split_is_read_as_of_a_graph_in_memory(
    tmp_path: Path, suffix: str, parts: tuple[str, ...], pattern: str
) -> None:
    held = {pattern.format(part): splits()[part] for part in parts}
    if pattern == "{}_mask":
        held = {name: np.isin(np.arange(NUM_NODES), index) for name, index in held.items()}
    path = write(tmp_path, plain(**held), suffix)
    data = Data(torch.from_numpy(raw_graph()["features"]), torch.from_numpy(BOTH))
    data.update({key: torch.from_numpy(array) for key, array in held.items()})
    data.y = torch.from_numpy(raw_graph()["labels"])
    for graph in (load_custom(path), GraphDataModule.from_data(data).graph):
        assert same_graph(graph, RING)
        assert {key for key in graph.to_dict() if key.startswith("index_")} == {
            f"index_{part}" for part in parts
        }
        assert all(graph[f"index_{part}"].tolist() == splits()[part].tolist() for part in parts)
        assert "split_drawn" not in graph


def test_what_is_not_read_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    weight = np.ones(BOTH.shape[1])
    load_custom(write(tmp_path, plain(edge_weight=weight / 2, edge_attr=weight, pos=weight)))
    assert "weights other than 1" in caplog.text
    assert "not read: edge_attr, pos" in caplog.text


def test_nodes_without_a_label_are_in_no_part(tmp_path: Path) -> None:
    labels = np.concatenate([raw_graph()["labels"], [-1, -1]])
    larger = plain(features=np.eye(NUM_NODES + 2), labels=labels)
    graph = load_custom(write(tmp_path, larger))
    assert graph.num_classes == RING.num_classes
    assert graph.y.tolist() == labels.tolist()
    drawn = [graph[f"index_{part}"] for part in SPLITS]
    assert torch.cat(drawn).max() < NUM_NODES
    held = larger | indices() | {"index_train": np.array([0, NUM_NODES])}
    assert "node 20 of train" in refusal(load_custom, write(tmp_path, held))


N = NUM_NODES
BAD: dict[str, tuple[Arrays, str]] = {
    **{f"no {key}": (without(plain(), key), f"array {key}") for key in plain()},
    "edges beyond": (plain(edge_index=BOTH + 1), "names node 20"),
    "features a number": (plain(features=np.array(3.0)), "names node"),
    "features none": (plain(features=np.ones((0, 3)), edge_index=BOTH[:, :0]), "adjacency"),
    "features twice": (plain(x=np.eye(N)), "both features and x"),
    "edges twice": (plain(**csr_parts(symmetric(EDGES), "adj")), "both edge_index and adj_data"),
    "splits that differ": (plain(**indices(), train_mask=masks()["val_mask"]), "index_train: "),
    "split of another name": (plain(train_set=np.ones((N, 2), bool)), "train_set: "),
    "weights too few": (plain(edge_weight=np.ones(3)), "edge_weight"),
    "weights NaN": (plain(edge_weight=np.full(BOTH.shape[1], np.nan)), "weights"),
    "CSR of another size": (
        without(plain(), "edge_index") | csr_parts(sp.csr_matrix((30, 30)), "adj"), "(20, 3)",
    ),
    "too few nodes": (
        {"edge_index": np.zeros((2, 0), int), "x": np.eye(9), "y": np.arange(9) % 2}, "9 nodes",
    ),
    "masks without val": (plain(**without(masks(), "val_mask")), "val_mask: missing"),
    "masks overlap": (plain(**masks() | {"val_mask": masks()["test_mask"]}), "in both index_val"),
}  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("suffix", [".npz", ".pt"])
@pytest.mark.parametrize(("arrays", "key"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_in_one_line(
    tmp_path: Path, arrays: Arrays, key: str, suffix: str
) -> None:
    assert key in refusal(load_custom, write(tmp_path, arrays, suffix))


def test_no_path_says_what_to_give() -> None:
    with pytest.raises(ConfigError, match=r"^dataset\.source\.path=null: "):
        load_custom(None)


@pytest.mark.faults
@pytest.mark.parametrize("name", ["graph.csv", "graph", "graph.NPZ", "graph.npz", "graph.pt"])
def test_another_kind_of_file_is_refused(tmp_path: Path, name: str) -> None:
    refusal(load_custom, tmp_path / name)  # not there
    (tmp_path / name).write_text("1,2")
    refusal(load_custom, tmp_path / name)
    assert "adj.npz, features.npz" in refusal(load_custom, tmp_path)
    (write_grb(tmp_path) / "adj.npz").unlink()
    assert "adj.npz: not found" in refusal(load_custom, tmp_path / "grb-ring")


def stamped(signal: NDArray[np.generic], offset: float = 1.7e9) -> dict[str, Any]:
    """The plain graph with features of one column: a time stamp."""
    return plain() | {"features": offset + signal.reshape(-1, 1)}


@pytest.mark.faults
@pytest.mark.parametrize("suffix", [".npz", ".pt"])
@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_time_stamps_survive_their_normalisation(
    tmp_path: Path, suffix: str, dtype: type[np.generic]
) -> None:
    seconds = np.arange(20)
    path = write(tmp_path, stamped(seconds.astype(dtype)), suffix)
    datamodule = GraphDataModule(partial(load_custom, path), name="mine", difficulty="full")
    x = datamodule.graph.x
    assert x.dtype == torch.float32
    centred = torch.from_numpy(seconds - seconds.mean())[:, None]
    assert torch.allclose(x, feature_scale(centred).normalize(centred).float(), atol=1e-6)


@pytest.mark.parametrize(
    ("stored", "key"),
    [
        ([torch.eye(2)], ""),
        (Data(x=torch.eye(2)), ""),
        (plain(features=torch.eye(N).bfloat16()), "features"),
        (plain(features=torch.eye(N).to_sparse()), "features"),
        (plain(x=Bomb(Path("mark"))), ""),
        (plain(split_idx={"train": [1, 2]}), "split_idx: "),
    ],
    ids=["list", "Data", "bfloat16", "sparse", "bomb", "split"],
)
def test_an_unreadable_torch_file_is_refused(tmp_path: Path, stored: Any, key: str) -> None:
    if isinstance(stored, dict):
        path = write(tmp_path, stored, ".pt")
    else:
        torch.save(stored, path := tmp_path / "a.pt")
    assert key in refusal(load_custom, path)
    assert not Path("mark").exists()


ARRAYS: SearchStrategy[np.ndarray] = hnp.arrays(
    st.one_of(
        hnp.integer_dtypes(endianness="="),
        hnp.floating_dtypes(endianness="=", sizes=(32, 64)),
        hnp.boolean_dtypes(),
    ),
    st.one_of(
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=22),
        st.tuples(st.just(2), st.integers(0, 30)),
        st.tuples(st.just(NUM_NODES), st.integers(0, 3)),
        st.just((NUM_NODES,)),
    ),
)
SMALL_NODES = hnp.arrays(np.int64, (2, 12), elements=st.integers(-1, 21))
KEYS = [*plain(), *indices(), *masks()]


@settings(max_examples=60)
@given(
    base=st.sampled_from([{}, indices(), masks()]),
    changes=st.dictionaries(st.sampled_from(KEYS), ARRAYS, min_size=1, max_size=2),
    edges=st.none() | SMALL_NODES,
    suffix=st.sampled_from([".npz", ".pt"]),
)
def test_any_arrays_are_refused_or_give_their_graph(
    base: Arrays, changes: Arrays, edges: np.ndarray | None, suffix: str
) -> None:
    arrays = plain(**base) | changes | ({} if edges is None else {"edge_index": edges})
    with TemporaryDirectory() as folder:
        try:
            path = write(Path(folder), arrays, suffix)
        except TypeError:  # torch has no such type
            return
        try:
            graph = load_custom(path)
        except DataError as error:
            assert str(error).startswith(str(path))  # noqa: PT017 - the arrays may be good
            assert "\n" not in str(error)  # noqa: PT017
            return
    assert {tuple(edge) for edge in graph.edge_index.T.tolist()} == {
        pair for u, v in arrays["edge_index"].T.tolist() for pair in ((u, v), (v, u)) if u != v
    }
    assert np.array_equal(graph.x.numpy(), np.asarray(arrays["features"], np.float32))
    assert graph.y.tolist() == arrays["labels"].ravel().tolist()
    for name in ("train", "val", "test"):
        given = arrays.get(f"index_{name}", np.flatnonzero(arrays.get(f"{name}_mask", ())))
        assert graph[f"index_{name}"].tolist() == sorted(given) or not base


@pytest.mark.slow
def test_several_graphs_are_one_sweep(
    cli: Callable[..., Any], tmp_path: Path, tiny: list[str]
) -> None:
    paths = [tmp_path / "first.npz", tmp_path / "second graph(1).pt"]
    for seed, path in enumerate(paths):
        arrays = plain(features=plain()["features"] + seed)
        write(tmp_path, arrays, path.suffix).rename(path)
    given = ",".join(f"'{path}'" for path in paths)
    kept = [option for option in tiny if not option.startswith("dataset.")]
    outcome = cli("-m", "dataset=custom", f"dataset.source.path={given}", "flow=heat", *kept)
    assert outcome.status == 0, outcome.err
    assert [row["dataset"] for row in outcome.table] == ["first", "second graph_1_"]
    assert len({record["cell"] for record in outcome.records}) == 2
    for record in outcome.records:
        assert (record["difficulty"], record["epochs"]) == ("full", 3)
        assert set(record["budget"]["spent"]) == {"speit", "tdgia"}
        assert record["split_drawn"] is True
