import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.utils import coalesce

from robust_diffusion.attacks.audit import perturbed_files, read_perturbed
from robust_diffusion.errors import DataError
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.artifact import Artifact
from tests.attacks.audit.graphs import (
    CLEAN,
    TARGETS,
    WIDTH,
    G,
    N,
    add_edges,
    codes,
    inject_audit,
    injected,
    modified,
    modify_audit,
)
from tests.data.files import Bomb, refusal


def rows_of(graph: G) -> sp.csr_matrix:
    """What GRB keeps of an injection: the rows of the new nodes."""
    m = graph.x.size(0)
    row, col = graph.edge_index
    whole = sp.csr_matrix((np.ones(row.numel(), np.float32), (row, col)), shape=(m, m))
    return whole[N:] if m > N else whole


def write_grb_result(folder: Path, graph: G, *, name: str = "", features: Any = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    sp.save_npz(folder / f"adj{name}.npz", rows_of(graph))
    written = graph.x[N:].numpy() if features is None else features
    np.save(folder / f"features{name}.npy", written)
    return folder / f"adj{name}.npz"


def test_grb_injections_are_read(tmp_path: Path) -> None:
    graph = add_edges(injected(), (N, N + 1))
    path = write_grb_result(tmp_path, graph)
    read = read_perturbed(path, CLEAN)
    assert (read.kind, read.violations) == ("injection", [])
    assert torch.equal(read.x, graph.x)
    assert torch.equal(coalesce(read.edge_index), coalesce(graph.edge_index))
    assert read.edge_index.size(1) == graph.edge_index.size(1)
    # The whole matrix, and the features of all nodes or of the new ones in double precision.
    m, (row, col) = N + 3, graph.edge_index
    sp.save_npz(path, sp.coo_matrix((np.ones(row.numel()), (row, col)), (m, m)))
    for features in (graph.x.numpy(), graph.x[N:].double().numpy()):
        np.save(tmp_path / "features.npy", features)
        whole = read_perturbed(path, CLEAN)
        assert torch.equal(whole.x, graph.x)
        assert torch.equal(coalesce(whole.edge_index), coalesce(graph.edge_index))


@pytest.mark.parametrize("features", [True, False])
def test_grb_modifications_are_read(tmp_path: Path, features: bool) -> None:
    graph = modified() if features else replace(modified(), x=CLEAN.x)
    # GRB normalises in float32, ours is float64 rounded to float32.
    noise = torch.rand(graph.x.shape, generator=torch.Generator().manual_seed(5)) * 2e-7
    path = write_grb_result(
        tmp_path, graph, name="_rn_0.2_re_0.2", features=(graph.x + noise).numpy()
    )
    if not features:
        (tmp_path / "features_rn_0.2_re_0.2.npy").unlink()
    read = read_perturbed(path, CLEAN)
    assert read.kind == "modification"
    assert modify_audit(G(read.x, read.edge_index), epsilon=0.1001) == []
    untouched = torch.ones(N, dtype=torch.bool)
    untouched[TARGETS[:5]] = not features
    assert torch.equal(read.x[untouched], CLEAN.x[untouched])


def test_edges_with_a_weight_are_found(tmp_path: Path) -> None:
    write_grb_result(tmp_path, injected())
    rows = rows_of(injected())
    rows.data[2] = 2
    sp.save_npz(tmp_path / "adj.npz", rows)
    read = read_perturbed(tmp_path / "adj.npz", CLEAN)
    assert codes(read.violations) == {"duplicate_edge"}
    assert inject_audit(G(read.x, read.edge_index)) == []
    for weight in (0.5, 1.5, -1, np.inf, np.nan):
        rows.data[2] = weight
        sp.save_npz(tmp_path / "adj.npz", rows)
        read = read_perturbed(tmp_path / "adj.npz", CLEAN)
        assert codes(read.violations) == {"edge_weight"}


def test_entries_of_the_store_are_read(tmp_path: Path) -> None:
    store, graph = ArtifactStore(tmp_path), modified()
    whole = {"x": graph.x, "edge_index": graph.edge_index}
    nodes = TARGETS[:5]
    differences = {
        "injected_x": graph.x[N:],
        "changed_nodes": nodes,
        "changed_x": graph.x[nodes],
        "edge_index": graph.edge_index,
    }
    for seed, tensors in enumerate((whole, differences)):
        store.get_or_compute("graph", {"seed": seed}, lambda tensors=tensors: Artifact(tensors))
        read = read_perturbed(store.path("graph", {"seed": seed}), CLEAN)
        assert torch.equal(read.x, graph.x)
        assert torch.equal(read.edge_index, graph.edge_index)
        assert read.kind == "modification"
    store.get_or_compute("model", {}, lambda: Artifact({"w": torch.ones(2)}))
    assert len(perturbed_files(tmp_path)) == 2


@pytest.mark.parametrize("through", ["folder", "file"])
def test_a_pickle_is_refused_and_never_run(tmp_path: Path, through: str) -> None:
    mark = tmp_path / "mark"
    path = tmp_path / "result" / "adj.pkl"
    path.parent.mkdir()
    path.write_bytes(pickle.dumps(Bomb(mark)))
    found = [path] if through == "file" else perturbed_files(path.parent)
    refusal(lambda path: read_perturbed(path, CLEAN), *found)
    assert not mark.exists()


def test_read_perturbed_errors(tmp_path: Path) -> None:
    path, mark = write_grb_result(tmp_path, injected()), tmp_path / "mark"
    features, bomb = tmp_path / "features.npy", np.array([Bomb(mark)])
    cases: list[Callable[[], Any]] = [
        lambda: np.save(features, np.zeros((2, WIDTH))),
        lambda: np.save(features, np.zeros((3, WIDTH)) * 1j),
        lambda: np.save(features, bomb, allow_pickle=True),
        lambda: features.write_bytes(b"no"),
        features.unlink,
        lambda: sp.save_npz(path, sp.csr_matrix((7, 9))),
        lambda: path.write_bytes(path.read_bytes()[:-9]),
        path.unlink,
    ]
    for damage in cases:
        damage()
        with pytest.raises(DataError, match=rf"^{tmp_path}[^\n]*$"):
            read_perturbed(path, CLEAN)
    assert not mark.exists()
    features.touch()
    (empty := tmp_path / "empty").mkdir()
    refusal(lambda path: read_perturbed(path, CLEAN), features)
    refusal(perturbed_files, empty)
    assert ": is a folder; " in refusal(lambda path: read_perturbed(path, CLEAN), empty)
    (pickled := tmp_path / "adj.pkl").write_bytes(pickle.dumps(np.eye(3)))
    refusal(lambda path: read_perturbed(path, CLEAN), pickled)


def test_entries_of_the_store_that_are_no_graph_or_damaged_are_refused(tmp_path: Path) -> None:
    entries = {
        "model": {"w": torch.ones(2)},
        "lacking": {"x": CLEAN.x},
        "other": {  # of another graph
            "injected_x": torch.zeros(1, WIDTH + 1),
            "changed_nodes": torch.tensor([N + 5]),
            "changed_x": torch.zeros(1, WIDTH + 1),
            "edge_index": CLEAN.edge_index,
        },
        "damaged": {"x": CLEAN.x, "edge_index": CLEAN.edge_index},
    }
    store = ArtifactStore(tmp_path)
    for name, tensors in entries.items():
        store.get_or_compute("graph", {"of": name}, lambda tensors=tensors: Artifact(tensors))
        path = store.path("graph", {"of": name})
        if name == "damaged":
            path.write_bytes(path.read_bytes()[:-1])
        refusal(lambda path: read_perturbed(path, CLEAN), path)
