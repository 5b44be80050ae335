from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from robust_diffusion.data import download
from robust_diffusion.data.download import LocalFolder
from robust_diffusion.data.sources import load_grb
from tests.data.files import raw_graph, write_grb

Cli = Callable[..., Any]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without network and without the real data."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(download.pooch, "retrieve", never)
    monkeypatch.delenv("ROBUST_DIFFUSION_DATA", raising=False)


def rows(outcome: Any, title: str) -> list[dict[str, str]]:
    """The rows of the table under the title."""
    lines = outcome.out[outcome.out.index(title) :].splitlines()[1:]
    table = []
    for line in (line.strip() for line in lines):
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip("|").split("|")])
        elif table:
            break
    header, _, *body = table
    return [dict(zip(header, row, strict=True)) for row in body]


def test_list_says_what_is_there(cli: Cli, tmp_path: Path) -> None:
    write_grb(tmp_path / "mine", name="citeseer")
    outcome = cli("data", "list", "--data-dir", str(tmp_path / "mine"))
    assert outcome.status == 0
    states = {row["dataset"]: row["state"] for row in rows(outcome, "data directory")}
    expected = {"citeseer": "present", "synthetic": "built in", "cora": "missing"}
    assert states.items() >= expected.items()


@pytest.mark.parametrize("value", [None, "", "elsewhere"])
def test_the_directory_is_that_of_the_runs(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is not None:
        monkeypatch.setenv("ROBUST_DIFFUSION_DATA", value)
    assert cli("data", "list").out.splitlines()[0] == f"data directory {value or 'data'}"


@pytest.mark.parametrize("there", [True, False])
def test_verify_passes_where_nothing_is_damaged(cli: Cli, tmp_path: Path, there: bool) -> None:
    if there:
        write_grb(tmp_path / "data", name="citeseer")
    before = sorted(tmp_path.rglob("*"))
    outcome = cli("data", "verify")
    assert outcome.status == 0
    files = [row for row in rows(outcome, "data directory") if row["dataset"] == "citeseer"]
    assert {row["state"] for row in files} == {"present" if there else "missing"}
    assert ("citeseer" in {row["dataset"] for row in rows(outcome, "Graphs")}) is there
    assert there or sorted(tmp_path.rglob("*")) == before


def test_verify_fails_on_a_damaged_file(cli: Cli, tmp_path: Path) -> None:
    folder = write_grb(tmp_path / "data", name="citeseer")
    (folder / "adj.npz").write_bytes((folder / "adj.npz").read_bytes()[:-20])
    outcome = cli("data", "verify")
    assert outcome.status == 1
    (broken,) = [row for row in rows(outcome, "data directory") if row["state"] == "damaged"]
    assert (broken["dataset"], broken["file"]) == ("citeseer", "adj.npz")
    assert "cut short" in broken["detail"]


def test_verify_fails_on_files_that_are_no_graph(cli: Cli, tmp_path: Path) -> None:
    write_grb(tmp_path / "data", name="citeseer", labels=raw_graph()["labels"] + 1)
    outcome = cli("data", "verify")
    assert outcome.status == 1
    problems = {row["dataset"]: row["problem"] for row in rows(outcome, "Graphs")}
    assert "labels" in problems["citeseer"]


def test_a_broken_list_of_hashes_is_one_line(cli: Cli, tmp_path: Path) -> None:
    (write_grb(tmp_path / "data", name="citeseer") / "sha256.json").write_text("{")
    outcome = cli("data", "list")
    assert outcome.status == 1
    assert "sha256.json: cannot be read" in outcome.error
    assert outcome.error.endswith("delete it")


@pytest.mark.parametrize("arguments", [[], ["nope"], ["list", "--nope"]])
def test_an_unknown_command_says_which_there_are(cli: Cli, arguments: list[str]) -> None:
    outcome = cli("data", *arguments)
    assert outcome.status == 2
    assert "usage: robust-diffusion data" in outcome.err
    assert "list" in outcome.err


def test_a_dataset_is_exported_in_the_layout_of_grb(cli: Cli, tmp_path: Path) -> None:
    source = write_grb(tmp_path / "data", name="citeseer")
    for name in ("citeseer", str(source)):
        folder = tmp_path / "exported" / Path(name).name
        outcome = cli("data", "export", name, str(folder))
        assert outcome.status == 0
        assert f"{name} is in {folder}" in outcome.out
        read, expected = (load_grb(LocalFolder(of)) for of in (folder, source))
        assert read.keys() == expected.keys()
        assert all(map(torch.equal, *([g.x, g.edge_index, g.index_val] for g in (read, expected))))
        outcome = cli("data", "export", name, str(folder))
        assert outcome.status == 1
        assert f"folder {folder}: holds adj.npz" in outcome.error
        assert cli("data", "export", name, str(folder), "--overwrite").status == 0
    outcome = cli("data", "export", "nowhere", str(tmp_path / "other"))
    assert outcome.status == 1
    assert "nowhere: no dataset; use a path, or one of" in outcome.error
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("arguments", [["export"], ["export", "cora"], ["list", "cora", "folder"]])
def test_export_takes_two_names_and_the_others_none(cli: Cli, arguments: list[str]) -> None:
    outcome = cli("data", *arguments)
    assert outcome.status == 2
    assert "export takes DATASET and FOLDER" in outcome.err
