from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.data import download
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
    assert (states["citeseer"], states["synthetic"], states["cora"]) == (
        "present",
        "built in",
        "missing",
    )


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
    assert "label 4 is out of range" in problems["citeseer"]


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
