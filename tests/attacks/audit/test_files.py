import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.utils import coalesce

from robust_diffusion.attacks.audit import (
    Violation,
    perturbed_files,
    read_perturbed,
    write_perturbed,
)
from robust_diffusion.errors import AttackError, DataError
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.artifact import Artifact
from tests.attacks.audit.graphs import (
    CLEAN,
    TARGETS,
    WIDTH,
    G,
    N,
    add_edges,
    changed,
    codes,
    inject_audit,
    injected,
    modified,
    modify_audit,
)
from tests.data.files import Bomb


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
    read = read_perturbed(write_grb_result(tmp_path, graph), CLEAN)
    assert read.kind == "injection"
    assert torch.equal(read.x, graph.x)
    assert read.violations == []
    as_sets = [set(map(tuple, g.edge_index.t().tolist())) for g in (read, graph)]
    assert as_sets[0] == as_sets[1]
    assert read.edge_index.size(1) == graph.edge_index.size(1)
    assert codes(inject_audit(G(read.x, read.edge_index))) == {
        "edges_per_injected_node",
        "injected_edges",
    }


def test_grb_injections_with_the_whole_matrix_are_read(tmp_path: Path) -> None:
    graph = injected()
    m = N + 3
    row, col = graph.edge_index
    sp.save_npz(tmp_path / "adj.npz", sp.coo_matrix((np.ones(row.numel()), (row, col)), (m, m)))
    np.save(tmp_path / "features.npy", graph.x.numpy())
    read = read_perturbed(tmp_path / "adj.npz", CLEAN)
    assert (read.kind, inject_audit(G(read.x, read.edge_index))) == ("injection", [])
    np.save(tmp_path / "features.npy", graph.x[N:].double().numpy())
    read = read_perturbed(tmp_path / "adj.npz", CLEAN)
    assert torch.equal(read.x, graph.x)


@pytest.mark.parametrize("features", [True, False])
def test_grb_modifications_are_read(tmp_path: Path, features: bool) -> None:
    graph = modified() if features else changed(modified(), x=CLEAN.x)
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
    message = (
        "1 edges have a weight, the first 40-4 (2); all must be 1. An edge that is listed twice "
        "has the weight 2: merge_duplicates counts it once"
    )
    assert read.violations == [Violation("edge_weight", message)]
    assert inject_audit(G(read.x, read.edge_index)) == []
    merged = read_perturbed(tmp_path / "adj.npz", CLEAN, merge_duplicates=True)
    assert merged.violations == []
    assert torch.equal(merged.edge_index, read.edge_index)
    for weight in (0.5, 1.5, -1):
        rows.data[2] = weight
        sp.save_npz(tmp_path / "adj.npz", rows)
        read = read_perturbed(tmp_path / "adj.npz", CLEAN, merge_duplicates=True)
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
    with pytest.raises(
        DataError, match="lacks 'edge_index', so it is no perturbed graph; it holds w"
    ):
        read_perturbed(store.path("model", {}), CLEAN)


def test_an_entry_of_another_graph_is_told_apart(tmp_path: Path) -> None:
    tensors = {
        "injected_x": torch.zeros(1, WIDTH + 1),
        "changed_nodes": torch.tensor([N + 5]),
        "changed_x": torch.zeros(1, WIDTH + 1),
        "edge_index": CLEAN.edge_index,
    }
    store = ArtifactStore(tmp_path)
    store.get_or_compute("graph", {}, lambda: Artifact(tensors))
    with pytest.raises(DataError, match=r"does not fit the clean graph .*name the dataset"):
        read_perturbed(store.path("graph", {}), CLEAN)


@pytest.mark.parametrize("through", ["folder", "file"])
def test_a_pickle_is_refused_and_never_run(tmp_path: Path, through: str) -> None:
    mark = tmp_path / "mark"
    path = tmp_path / "result" / "adj.pkl"
    path.parent.mkdir()
    path.write_bytes(pickle.dumps(Bomb(mark)))
    found = [path] if through == "file" else perturbed_files(path.parent)
    with pytest.raises(DataError, match=r"adj\.pkl: cannot be read \(it names ") as caught:
        read_perturbed(*found, CLEAN)
    assert "which is not data" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not mark.exists()


@pytest.mark.parametrize("form", ["csr", "coo"])
@pytest.mark.parametrize("suffix", [".pkl", ".pickle"])
def test_the_pickles_of_grb_are_read(tmp_path: Path, form: str, suffix: str) -> None:
    write_grb_result(tmp_path, injected()).unlink()
    rows = rows_of(injected()).asformat(form)
    (tmp_path / f"adj{suffix}").write_bytes(pickle.dumps(rows))
    (path,) = perturbed_files(tmp_path)
    read = read_perturbed(path, CLEAN)
    assert read.violations == []
    assert torch.equal(read.x, injected().x)
    assert torch.equal(coalesce(read.edge_index), coalesce(injected().edge_index))
    path.write_bytes(pickle.dumps(np.eye(3)))
    with pytest.raises(DataError, match=r"holds no sparse matrix; save adj\.tocsr"):
        read_perturbed(path, CLEAN)


def test_edges_that_are_listed_twice_are_told_and_merged(tmp_path: Path) -> None:
    write_grb_result(tmp_path, injected())
    rows = rows_of(injected()).tocoo()
    twice = [np.append(part, part[:2]) for part in (rows.data, rows.row, rows.col)]
    (tmp_path / "adj.npz").unlink()
    content = pickle.dumps(sp.coo_matrix((twice[0], tuple(twice[1:])), shape=rows.shape))
    (tmp_path / "adj.pkl").write_bytes(content)
    read = read_perturbed(tmp_path / "adj.pkl", CLEAN)
    (violation,) = read.violations
    assert violation.code == "edge_weight"
    assert violation.message.startswith("2 edges have a weight")
    read = read_perturbed(tmp_path / "adj.pkl", CLEAN, merge_duplicates=True)
    assert read.violations + inject_audit(G(read.x, read.edge_index)) == []
    edge_index = torch.cat([injected().edge_index, injected().edge_index[:, -4:]], 1)
    store = ArtifactStore(tmp_path)
    entry = Artifact({"x": injected().x, "edge_index": edge_index})
    store.get_or_compute("graph", {}, lambda: entry)
    path = store.path("graph", {})
    read = read_perturbed(path, CLEAN)
    assert codes(inject_audit(G(read.x, read.edge_index))) == {"duplicate_edge"}
    read = read_perturbed(path, CLEAN, merge_duplicates=True)
    assert inject_audit(G(read.x, read.edge_index)) == []


@pytest.mark.parametrize("make", [injected, modified])
def test_what_is_written_for_grb_is_read_back(tmp_path: Path, make: Callable[[], G]) -> None:
    graph = make()
    path = write_perturbed(tmp_path / "new" / "attack", graph, CLEAN)
    read = read_perturbed(path, CLEAN)
    assert read.violations == []
    assert torch.equal(read.x, graph.x)
    assert torch.equal(coalesce(read.edge_index), coalesce(graph.edge_index))
    # As GRB itself reads them.
    rows, new = pickle.loads(path.read_bytes()), np.load(path.with_name("features.npy"))
    m = graph.x.size(0)
    assert isinstance(rows, sp.csr_matrix)
    assert (rows.shape, len(new)) == (((m - N, m), m - N) if m > N else ((N, N), N))


def test_what_grbs_files_cannot_hold_is_refused(tmp_path: Path) -> None:
    graph = injected()
    x = graph.x.clone()
    x[TARGETS[0]] += 0.1
    for both in (changed(graph, x=x), changed(graph, edge_index=graph.edge_index[:, 2:])):
        with pytest.raises(AttackError, match="changes original nodes or edges too"):
            write_perturbed(tmp_path / "attack", both, CLEAN)
    assert not (tmp_path / "attack").exists()


def test_a_pickle_inside_the_features_is_refused(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    path = write_grb_result(tmp_path, injected())
    np.save(tmp_path / "features.npy", np.array([Bomb(mark)]), allow_pickle=True)
    with pytest.raises(DataError, match=r"features\.npy: cannot be read \(Object arrays"):
        read_perturbed(path, CLEAN)
    assert not mark.exists()


def test_files_that_do_not_fit_are_told_in_a_line(tmp_path: Path) -> None:
    path = write_grb_result(tmp_path, injected())
    cases: list[tuple[Callable[[], Any], str]] = [
        (
            lambda: np.save(tmp_path / "features.npy", np.zeros((2, WIDTH))),
            r"shape \(2, 4\); they must be 3 x 4 or 43 x 4",
        ),
        (
            lambda: np.save(tmp_path / "features.npy", np.zeros((3, WIDTH)) * 1j),
            "holds no real numbers",
        ),
        (lambda: (tmp_path / "features.npy").write_bytes(b"no"), r"features\.npy: cannot be read"),
        (lambda: (tmp_path / "features.npy").unlink(), r"features\.npy: not found"),
        (
            lambda: sp.save_npz(path, sp.csr_matrix((7, 9))),
            "is 7 x 9, which does not fit the 40 nodes",
        ),
        (lambda: path.write_bytes(path.read_bytes()[:-9]), r"adj\.npz: cannot be read"),
        (lambda: path.unlink(), r"adj\.npz: not found"),
    ]
    for damage, message in cases:
        damage()
        with pytest.raises(DataError, match=message) as caught:
            read_perturbed(path, CLEAN)
        assert "\n" not in str(caught.value)
    (tmp_path / "features.npy").touch()
    with pytest.raises(DataError, match="is neither"):
        read_perturbed(tmp_path / "features.npy", CLEAN)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="holds no perturbed graph"):
        perturbed_files(empty)


def test_a_damaged_entry_is_refused(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    store.get_or_compute("graph", {}, lambda: Artifact({"x": CLEAN.x}))
    path = store.path("graph", {})
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="is damaged"):
        read_perturbed(path, CLEAN)
