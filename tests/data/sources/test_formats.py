"""Snippets of docs/formats.md, each run on a small file of its format."""

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from scipy.io import savemat

from robust_diffusion.data.sources import load_custom
from robust_diffusion.data.sources.custom import SNIPPETS
from tests.data.files import EDGES, NUM_NODES, raw_graph, refusal, symmetric

PAGE = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")
CODE = {
    title: re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    for title, section in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
}
SUFFIXES = {suffix: code for title, code in CODE.items() for suffix in re.findall(r"\.\w+", title)}
RAW = raw_graph()
FEATURES, LABELS = RAW["features"].astype(np.float32), RAW["labels"]
NAMES = [f"n{node}" for node in range(NUM_NODES)]
TABLE = pd.DataFrame(FEATURES, NAMES, ["a", "b", "c"]).assign(label=LABELS)
RING = [(NAMES[u], NAMES[v]) for u, v in EDGES]


def ring(label: str = "label") -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(TABLE.rename(columns={"label": label}).to_dict("index").items())
    graph.add_edges_from(RING)
    return graph


def write_mat() -> None:
    held = {"Network": symmetric(EDGES), "Attributes": sp.csc_matrix(FEATURES)}
    savemat("my_graph.mat", {**held, "Label": LABELS[:, None] + 1})


def write_edgelist() -> None:
    nx.write_edgelist(nx.Graph(EDGES), "my_graph.edgelist", data=False)
    pd.DataFrame({"node": range(NUM_NODES), "label": LABELS}).to_csv("my_nodes.csv", index=False)


def write_pickle() -> None:
    Path("my_graph.gpickle").write_bytes(pickle.dumps(ring()))


def write_csv() -> None:
    Path("my_graph").mkdir()
    TABLE.rename_axis("node").to_csv("my_graph/nodes.csv")
    edges = pd.DataFrame(RING, columns=["source", "target"]).assign(weight=1)
    edges.to_csv("my_graph/edges.csv", index=False)


def write_npz() -> None:
    held: dict[str, Any] = {"adj_matrix": symmetric(EDGES).tolil(), "node_attr": FEATURES}
    np.savez("theirs.npz", **held, node_label=LABELS)
    refusal(load_custom, Path("theirs.npz"))


WRITERS: dict[str, Callable[[], None]] = {
    ".mat": write_mat,
    ".gml": lambda: nx.write_gml(ring("value"), "my_graph.gml"),
    ".graphml": lambda: nx.write_graphml(ring(), "my_graph.graphml"),
    ".edgelist": write_edgelist,
    ".csv": write_csv,
    ".npz": write_npz,
    **dict.fromkeys([".gpickle", ".pickle", ".pkl"], write_pickle),
}


@pytest.mark.parametrize("suffix", sorted(SUFFIXES))
def test_the_snippet_of_a_format_makes_a_file_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.chdir(tmp_path)
    WRITERS[suffix]()
    ((snippet,), (end,)) = SUFFIXES[suffix], CODE["`Data` and file"]
    if suffix == ".graphml":
        snippet = snippet.replace("read_gml(", "read_graphml(").replace(".gml", suffix)
    exec(snippet + end, {})
    graph = load_custom("my_graph.pt")
    row, col = symmetric(EDGES).nonzero()
    assert graph.edge_index.tolist() == [row.tolist(), col.tolist()]
    assert graph.y.tolist() == LABELS.tolist()
    degree = np.bincount(row, minlength=NUM_NODES)[:, None]
    expected = degree if suffix == ".edgelist" else FEATURES
    assert torch.allclose(graph.x, torch.tensor(expected, dtype=torch.float32))


@pytest.mark.parametrize("suffix", SNIPPETS)
def test_a_format_that_is_not_read_is_sent_to_its_snippet(tmp_path: Path, suffix: str) -> None:
    assert suffix in SUFFIXES
    (tmp_path / f"graph{suffix}").touch()
    message = f"docs/formats.md has a snippet for {suffix}"
    assert message in refusal(load_custom, tmp_path / f"graph{suffix}")
    if suffix == ".csv":
        assert message in refusal(load_custom, tmp_path)
