from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data
from torch_geometric.utils import degree

from robust_diffusion.data import GraphDataModule, download
from robust_diffusion.data.sources import load_custom
from robust_diffusion.data.split import degree_split
from robust_diffusion.data.validate import NAMES, SPLITS, build_graph
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
from tests.pairs import pairs

Arrays = dict[str, Any]
SUFFIXES = [".npz", ".pt"]
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


def equal(a: Data, b: Data, *more: str) -> bool:
    return all(torch.equal(a[key], b[key]) for key in ("x", "y", "edge_index", *more))


def is_split_by_degree(graph: Data, seed: int) -> bool:
    degrees = degree(graph.edge_index[0], graph.num_nodes).long().numpy()
    drawn = degree_split(degrees, seed).items()
    return all(graph[f"index_{name}"].tolist() == index.tolist() for name, index in drawn)


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
    "CSR features": without(plain(), "edge_index", "features")
    | csr_parts(symmetric(EDGES), "adj")
    | csr_parts(sp.csr_matrix(raw_graph()["features"]), "attr"),
    "edges of weight 0": plain(
        edge_index=np.concatenate([BOTH, [[0], [9]]], 1),
        edge_weight=np.append(np.full((BOTH.shape[1], 1), 0.3), 0),
    ),
    "more than needed": plain(name=np.arange(3)),
}


@pytest.mark.parametrize(("arrays", "suffix"), list(zip(LAYOUTS.values(), cycle(SUFFIXES))))
def test_every_layout_is_split_by_degree(tmp_path: Path, arrays: Arrays, suffix: str) -> None:
    graph = load_custom(str(write(tmp_path, arrays, suffix)), split_seed=2)
    assert equal(graph, RING)
    assert "split_drawn" in graph
    assert is_split_by_degree(graph, 2)


@pytest.mark.parametrize(
    ("pattern", "parts", "suffix"), pairs(list(NAMES), [SPLITS, SPLITS[:3]], SUFFIXES)
)
def test_a_split_is_read_as_of_a_graph_in_memory(
    tmp_path: Path, pattern: str, parts: tuple[str, ...], suffix: str
) -> None:
    held = {pattern.format(part): splits()[part] for part in parts}
    if pattern == "{}_mask":
        held = {name: np.isin(np.arange(NUM_NODES), index) for name, index in held.items()}
    path = write(tmp_path, plain(**held), suffix)
    data = Data(torch.from_numpy(raw_graph()["features"]), torch.from_numpy(BOTH))
    data.update({key: torch.from_numpy(array) for key, array in held.items()})
    data.y = torch.from_numpy(raw_graph()["labels"])
    for graph in (load_custom(path), GraphDataModule.from_data(data).graph):
        assert equal(graph, RING)
        assert {key for key in graph.to_dict() if key.startswith("index_")} == {
            f"index_{part}" for part in parts
        }
        assert all(graph[f"index_{part}"].tolist() == splits()[part].tolist() for part in parts)
        assert "split_drawn" not in graph


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


@pytest.mark.faults
@pytest.mark.parametrize("name", ["graph.csv", "graph", "graph.NPZ", "graph.npz", "graph.pt"])
def test_another_kind_of_file_is_refused(tmp_path: Path, name: str) -> None:
    refusal(load_custom, tmp_path / name)  # not there
    with pytest.raises(ConfigError, match=r"^dataset\.source\.path=null: "):
        load_custom(None)
    (tmp_path / name).write_text("1,2")
    refusal(load_custom, tmp_path / name)
    assert "adj.npz, features.npz" in refusal(load_custom, tmp_path)
    (write_grb(tmp_path) / "adj.npz").unlink()
    assert "adj.npz: not found" in refusal(load_custom, tmp_path / "grb-ring")


@pytest.mark.parametrize(
    ("stored", "key"),
    [
        ([torch.eye(2)], ""),
        (Data(x=torch.eye(2)), ""),
        (plain(features=torch.eye(NUM_NODES).bfloat16()), "features"),
        (plain(features=torch.eye(NUM_NODES).to_sparse()), "features"),
        (plain(x=Bomb(Path("mark"))), ""),
    ],
    ids=["list", "Data", "bfloat16", "sparse", "bomb"],
)
def test_an_unreadable_torch_file_is_refused(tmp_path: Path, stored: Any, key: str) -> None:
    if isinstance(stored, dict):
        path = write(tmp_path, stored, ".pt")
    else:
        torch.save(stored, path := tmp_path / "a.pt")
    assert key in refusal(load_custom, path)
    assert not Path("mark").exists()


@pytest.mark.parametrize("key", ["adj_matrix", "node_attr", "node_label"])
def test_a_pickled_array_is_refused(tmp_path: Path, key: str) -> None:
    arrays = plain()
    held = {"edge_index": BOTH, "node_attr": arrays["features"], "node_label": arrays["labels"]}
    if key == "adj_matrix":
        del held["edge_index"]
    path = write(tmp_path, held | {key: Bomb(tmp_path / "mark")})
    assert f"{key} is pickled" in refusal(load_custom, path)
    assert not (tmp_path / "mark").exists()


BAD: dict[str, tuple[Arrays, str]] = {
    **{f"no {key}": (without(plain(), key), f"array {key}") for key in plain()},
    "features twice": (plain(x=np.eye(NUM_NODES)), "both features and x"),
    "split by another name": (plain(split_idx={"train": [1, 2]}), "split_idx: "),
    "no features but CSR": (
        without(plain(), "edge_index", "features") | csr_parts(symmetric(EDGES), "adj"), "degrees",
    ),
    "splits that differ": (plain(**indices(), train_mask=masks()["val_mask"]), "index_train: "),
    "weights too few": (plain(edge_weight=np.ones(3)), "edge_weight"),
    "CSR of another size": (
        without(plain(), "edge_index") | csr_parts(sp.csr_matrix((30, 30)), "adj"), "(20, 3)",
    ),
    "too few nodes": (
        {"edge_index": np.zeros((2, 0), int), "x": np.eye(9), "y": np.arange(9) % 2}, "9 nodes",
    ),
    "masks without val": (plain(**without(masks(), "val_mask")), "val_mask: missing"),
}  # fmt: skip


@pytest.mark.filterwarnings("error", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("arrays", "key"), BAD.values(), ids=BAD)
def test_unfit_arrays_are_refused(tmp_path: Path, arrays: Arrays, key: str) -> None:
    assert key in refusal(load_custom, write(tmp_path, arrays))


@pytest.mark.parametrize(("wrong", "right"), [("X", "x"), ("Labels", "labels")])
def test_a_name_in_other_case_is_to_be_renamed(tmp_path: Path, wrong: str, right: str) -> None:
    arrays = {"x": np.eye(4), "y": np.arange(4) % 2, "edge_index": np.array([[0, 1], [1, 2]])}
    part = "x" if right == "x" else "y"
    np.savez(tmp_path / "g.npz", **{wrong if key == part else key: a for key, a in arrays.items()})
    with pytest.raises(DataError, match=rf"g\.npz: [^\n]*; rename {wrong} to {right}$"):
        load_custom(tmp_path / "g.npz")


def test_an_archive_of_zeros_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "MOST_UNPACKED", 10**6)
    np.savez_compressed(tmp_path / "g.npz", x=np.zeros(10**6))
    with pytest.raises(DataError, match=r"g\.npz: [^\n]*unpack"):
        load_custom(tmp_path / "g.npz")
