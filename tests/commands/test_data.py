from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from robust_diffusion.data.download import LocalFolder
from robust_diffusion.data.sources import load_grb
from tests.data.files import write_grb

Cli = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("no_network")


@pytest.fixture(autouse=True)
def _without_real_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROBUST_DIFFUSION_DATA", raising=False)


def test_verify_fails_where_something_is_damaged(cli: Cli, tmp_path: Path) -> None:
    assert cli("data", "verify").status == 0
    assert not [*tmp_path.iterdir()]
    path = write_grb(tmp_path / "data", name="citeseer") / "adj.npz"
    path.write_bytes(path.read_bytes()[:-20])
    outcome = cli("data", "verify")
    assert outcome.status == 1
    assert "damaged" in outcome.out


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
