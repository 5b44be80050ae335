import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from robust_diffusion.data.download import LocalFolder
from robust_diffusion.data.sources import load_grb
from tests.data.files import raw_graph, write_grb

Cli = Callable[..., Any]


pytestmark = pytest.mark.usefixtures("no_network")


@pytest.fixture(autouse=True)
def _without_real_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROBUST_DIFFUSION_DATA", raising=False)


def rows(outcome: Any) -> dict[str, list[str]]:
    """Cells of all printed lines of tables, by dataset."""
    found: dict[str, list[str]] = {}
    for line in outcome.out.splitlines():
        name, *cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        found.setdefault(name, []).extend(cells)
    return found


def mislabelled(path: Path) -> None:
    shutil.rmtree(path.parent)
    write_grb(path.parents[1], name="citeseer", labels=raw_graph()["labels"] + 1)


@pytest.mark.parametrize(
    ("damage", "status", "said"),
    [
        (None, 0, "missing"),
        (lambda _: None, 0, "present"),
        (lambda path: path.write_bytes(path.read_bytes()[:-20]), 1, "damaged"),
        (mislabelled, 1, "labels"),
    ],
)
def test_verify_fails_where_something_is_damaged(
    cli: Cli, tmp_path: Path, damage: Any, status: int, said: str
) -> None:
    if damage is not None:
        damage(write_grb(tmp_path / "data", name="citeseer") / "adj.npz")
    before = sorted(tmp_path.rglob("*"))
    outcome = cli("data", "verify")
    assert outcome.status == status
    assert said in " ".join(rows(outcome)["citeseer"])
    assert damage is not None or sorted(tmp_path.rglob("*")) == before


def test_a_dataset_is_exported_in_the_layout_of_grb(cli: Cli, tmp_path: Path) -> None:
    source = write_grb(tmp_path / "data", name="citeseer")
    for name in ("citeseer", str(source)):
        folder = tmp_path / "exported" / Path(name).name
        assert cli("data", "export", name, str(folder)).status == 0
        read, expected = (load_grb(LocalFolder(of)) for of in (folder, source))
        assert read.keys() == expected.keys()
        assert all(map(torch.equal, *([g.x, g.edge_index, g.index_val] for g in (read, expected))))
        assert str(folder) in cli("data", "export", name, str(folder)).error
        assert cli("data", "export", name, str(folder), "--overwrite").status == 0
    assert "nowhere" in cli("data", "export", "nowhere", str(tmp_path / "other")).error
    assert not (tmp_path / "other").exists()
