import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.figures.files import write_figure

STARTS = {"pdf": b"%PDF", "png": b"\x89PNG", "svg": b"<?xml", "json": b"{"}


def test_every_format_is_written_beside_what_shaped_it(tmp_path: Path) -> None:
    written = write_figure(Figure(), tmp_path / "new", "flows", {"seed": 3})
    assert [path.name for path in written] == [f"flows.{form}" for form in STARTS]
    for path, start in zip(written, STARTS.values(), strict=True):
        assert path.read_bytes().startswith(start)
    about = json.loads(written[-1].read_text())
    assert about["seed"] == 3
    assert about["files"] == {form: f"flows.{form}" for form in ("pdf", "png", "svg")}
    assert sorted((tmp_path / "new").iterdir()) == sorted(written)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--directory"):
        write_figure(Figure(), tmp_path / "file", "flows", {})


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_figure(Figure(), tmp_path, "flows", {"value": float("nan")})
    assert not list(tmp_path.iterdir())
