import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hydra.core.global_hydra import GlobalHydra

from robust_diffusion.commands.audit import run_audit_command
from robust_diffusion.data.normalize import feature_scale
from robust_diffusion.data.sources import citation_like_graph
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.artifact import Artifact
from tests.conftest import TINY_DATA

GRAPH = citation_like_graph(200, 400, 16)
GRAPH.x = feature_scale(GRAPH.x).normalize(GRAPH.x)
EASY = GRAPH.index_test_easy
BUDGET = [
    "budget.max_injected_nodes=3",
    "budget.max_edges_per_injected_node=4",
    "budget.feature_limits=[-0.9,0.9]",
]


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    rows: list[dict[str, str]]


Audit = Callable[..., Outcome]


@pytest.fixture
def audit(capsys: pytest.CaptureFixture[str]) -> Audit:
    def run(*arguments: Any) -> Outcome:
        GlobalHydra.instance().clear()
        status = 0
        try:
            run_audit_command([*TINY_DATA, *BUDGET, *map(str, arguments)])
        except SystemExit as stop:
            status = int(stop.code or 0)
        out = capsys.readouterr().out
        lines = [line for line in out.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        rows = [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]
        return Outcome(status, out, rows)

    return run


def write_injection(folder: Path, *, value: float = 0.5, to: torch.Tensor = EASY) -> Path:
    """Three new nodes with four edges each, as GRB keeps them."""
    folder.mkdir(parents=True, exist_ok=True)
    row, col = np.repeat(np.arange(3), 4), to[:12].numpy()
    sp.save_npz(folder / "adj.npz", sp.csr_matrix((np.ones(12), (row, col)), shape=(3, 203)))
    np.save(folder / "features.npy", np.full((3, 16), value, dtype=np.float32))
    return folder


def write_entry(folder: Path, seed: int, **tensors: torch.Tensor) -> Path:
    store = ArtifactStore(folder)
    store.get_or_compute("graph", {"seed": seed}, lambda: Artifact(tensors))
    return store.path("graph", {"seed": seed})


def test_a_graph_within_its_budget_is_one_line(audit: Audit, tmp_path: Path) -> None:
    folder = write_injection(tmp_path / "result")
    outcome = audit(folder)
    assert outcome.status == 0
    line = f"{folder / 'adj.npz'}: injection on synthetic, easy test nodes; within its budget\n"
    assert outcome.out == line


def test_violations_are_a_table_and_a_failure(audit: Audit, tmp_path: Path) -> None:
    folder = write_injection(tmp_path, value=0.95)
    outcome = audit(folder, "budget.max_injected_edges=11")
    assert outcome.status == 1
    messages = {
        "injected_edges": "12 edges are injected; at most 11 may be in all",
        "feature_limits": "48 features are out of range, the first at node 200 (0.95), node 201 "
        "(0.95), node 202 (0.95); the range is -0.9..0.9",
    }
    assert {row["code"]: row["message"] for row in outcome.rows} == messages
    assert {row["level"] for row in outcome.rows} == {"error"}
    assert "within its budget" not in outcome.out
    assert audit(folder, "budget.feature_limits=[-1,1]").status == 0


def test_a_warning_is_shown_and_no_failure(audit: Audit, tmp_path: Path) -> None:
    outcome = audit(write_injection(tmp_path, to=GRAPH.index_train))
    assert outcome.status == 0
    assert [(row["level"], row["code"]) for row in outcome.rows] == [("warning", "not_a_target")]
    assert "; within its budget" in outcome.out


def test_the_targets_are_those_of_the_difficulty(audit: Audit, tmp_path: Path) -> None:
    folder = write_injection(tmp_path, to=GRAPH.index_test_hard)
    assert [row["code"] for row in audit(folder).rows] == ["not_a_target"]
    assert audit(folder, "difficulty=hard").rows == []


def test_entries_of_the_store_are_audited_one_by_one(audit: Audit, tmp_path: Path) -> None:
    x = torch.cat([GRAPH.x, torch.zeros(1, 16)])
    new = torch.stack([torch.full((5,), 200), EASY[:5]])
    edges = torch.cat([GRAPH.edge_index, new, new.flip(0)], 1)
    within = write_entry(tmp_path, 0, x=GRAPH.x, edge_index=GRAPH.edge_index)
    beyond = write_entry(tmp_path, 1, x=x, edge_index=edges)
    ArtifactStore(tmp_path).get_or_compute("victim", {}, lambda: Artifact({"w": torch.ones(1)}))
    outcome = audit(tmp_path)
    assert outcome.status == 1
    assert f"{within}: modification on synthetic, easy test nodes; within its budget" in outcome.out
    assert f"{beyond}: injection on synthetic, easy test nodes\n" in outcome.out
    assert [row["code"] for row in outcome.rows] == ["edges_per_injected_node"]
    assert audit(within).status == 0
    assert audit(beyond, within).status == 1


def test_the_kind_can_be_said(audit: Audit, tmp_path: Path) -> None:
    x = GRAPH.x.clone()
    x[EASY[0], 0] += 0.01
    path = write_entry(tmp_path, 0, x=x, edge_index=GRAPH.edge_index)
    assert audit(path, "budget.feature_limits=[-1,1]").status == 0
    outcome = audit("--kind", "injection", path)
    assert (outcome.status, outcome.rows[0]["code"]) == (1, "original_features")


def test_without_limits_those_of_the_clean_graph_count(audit: Audit, tmp_path: Path) -> None:
    high = GRAPH.x.max().item()
    folder = write_injection(tmp_path, value=high)
    assert audit(folder, "budget.feature_limits=null").status == 0
    write_injection(tmp_path, value=high + 1e-3)
    assert audit(folder, "budget.feature_limits=null").status == 1


def test_a_path_with_an_equals_sign_is_a_path(audit: Audit, tmp_path: Path) -> None:
    assert audit(write_injection(tmp_path / "seed=0")).status == 0


def test_a_weight_in_the_file_is_a_violation(audit: Audit, tmp_path: Path) -> None:
    folder = write_injection(tmp_path)
    rows = sp.load_npz(folder / "adj.npz")
    rows.data[:] = 100
    sp.save_npz(folder / "adj.npz", rows)
    outcome = audit(folder)
    assert outcome.status == 1
    assert outcome.rows[0]["code"] == "edge_weight"


def test_an_entry_of_the_store_becomes_grbs_files_and_back(audit: Audit, tmp_path: Path) -> None:
    x = torch.cat([GRAPH.x, torch.full((1, 16), 0.25)])
    new = torch.stack([torch.full((4,), 200), EASY[:4]])
    edges = torch.cat([GRAPH.edge_index, new, new.flip(0), new, new.flip(0)], 1)
    entry = write_entry(tmp_path, 0, x=x, edge_index=edges)
    assert [row["code"] for row in audit(entry).rows] == ["duplicate_edge"]
    outcome = audit(entry, "--merge-duplicates", "--export", tmp_path / "grb")
    folder = tmp_path / "grb" / entry.stem
    assert outcome.status == 0
    assert outcome.out.splitlines()[1] == str(folder / "adj.pkl")
    assert np.load(folder / "features.npy").tolist() == [[0.25] * 16]
    assert audit(folder).status == 0
    with pytest.raises(SystemExit, match="2"):
        run_audit_command([str(folder), str(folder), "--export", str(tmp_path)])


@pytest.mark.parametrize(
    "arguments", [[], ["dataset=synthetic"], ["x", "--nope"], ["x", "--kind", "k"]]
)
def test_a_wrong_call_says_what_is_right(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run_audit_command(arguments)
    assert "usage: robust-diffusion audit" in capsys.readouterr().err


def test_what_cannot_be_read_is_an_error(audit: Audit, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: not found; check the path"):
        audit("nowhere")
    (tmp_path / "adj.pkl").write_bytes(pickle.dumps(3))
    with pytest.raises(DataError, match=r"adj\.pkl: holds no sparse matrix"):
        audit(tmp_path)
    with pytest.raises(ConfigError, match=r"budget\.epsilon=0: must be a finite number"):
        audit(write_injection(tmp_path / "result"), "budget.epsilon=0")


@pytest.mark.parametrize(
    "stray", ["+max_injected_nodes=5", "flow=heat", "seed=1", "attacks.speit.num_steps=2"]
)
def test_an_option_that_it_does_not_read_is_refused(
    audit: Audit, tmp_path: Path, stray: str
) -> None:
    with pytest.raises(ConfigError, match="audit does not read it; use dataset, difficulty, budg"):
        audit(write_injection(tmp_path / "result"), stray)


def test_nothing_is_downloaded(
    audit: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from robust_diffusion.data import download

    def never(*_: object, **__: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(download.pooch, "retrieve", never)
    monkeypatch.setenv("ROBUST_DIFFUSION_DATA", str(tmp_path / "data"))
    GlobalHydra.instance().clear()
    with pytest.raises(DataError, match=r"grb-citeseer.*: not found"):
        run_audit_command([str(write_injection(tmp_path / "result")), "dataset=citeseer"])
