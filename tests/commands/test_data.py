from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
    assert "adj.npz: cannot be read" in outcome.out
