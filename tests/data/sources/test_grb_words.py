"""GRB's graph with Planetoid's words as features."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from robust_diffusion.data.download import DatasetFolder
from robust_diffusion.data.sources import load_grb_words
from robust_diffusion.errors import DataError
from tests.data.files import planetoid_parts, write_planetoid

N = 12
OMITTED = [2, 9, 13]


def folder_of(path: Path) -> DatasetFolder:
    return DatasetFolder(path, ".", {file.name: {} for file in path.iterdir()}, download=False)


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, Any]:
    """Twelve of Planetoid's fifteen nodes, in its order, as a path with a split."""
    parts = planetoid_parts(known=10, tested=5)
    write_planetoid(tmp_path / "words", "toy", **(parts | {"x": parts["allx"], "y": parts["ally"]}))
    one_hot, words = np.zeros((15, 3)), np.zeros((15, 6), np.float32)
    for array, first, rest in ((one_hot, "ally", "ty"), (words, "allx", "tx")):
        known, tested = (sp.csr_array(parts[key]).toarray() for key in (first, rest))
        array[:10], array[parts["test.index"]] = known, tested
    kept = [node for node in range(15) if node not in OMITTED]
    (grb := tmp_path / "grb").mkdir()
    path = sp.coo_array((np.ones(N - 1), (np.arange(N - 1), np.arange(1, N))), (N, N)).tocsr()
    sp.save_npz(grb / "adj.npz", sp.csr_matrix(path + path.T))
    labels = one_hot[kept].argmax(1)
    np.savez(grb / "labels.npz", data=labels)
    index = {"train": range(6), "val": range(6, 9), "test": range(9, N)}
    arrays: dict[str, Any] = {f"index_{part}": list(nodes) for part, nodes in index.items()}
    np.savez(grb / "index.npz", **arrays)
    return {"words": words[kept], "labels": labels}


def load(tmp_path: Path) -> Any:
    grb, words = folder_of(tmp_path / "grb"), folder_of(tmp_path / "words")
    return load_grb_words(grb, words, "toy", OMITTED)


def test_each_node_has_the_words_of_its_paper(tmp_path: Path, parts: dict[str, Any]) -> None:
    graph = load(tmp_path)
    np.testing.assert_array_equal(graph.x.numpy(), parts["words"])
    assert graph.y.tolist() == parts["labels"].tolist()
    assert graph.edge_index.size(1) == 2 * (N - 1)
    assert graph.index_test.tolist() == [9, 10, 11]


def test_nodes_of_other_papers_are_refused(tmp_path: Path, parts: dict[str, Any]) -> None:
    labels = 1 - np.minimum(parts["labels"], 1)
    np.savez(tmp_path / "grb" / "labels.npz", data=labels)
    with pytest.raises(DataError, match=r"dataset\.source\.omitted"):
        load(tmp_path)
