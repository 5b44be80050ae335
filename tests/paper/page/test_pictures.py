"""Figures that a folder holds, on the report page."""

import json
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.paper.page.pictures import load_pictures

SVG = '<svg xmlns="http://www.w3.org/2000/svg"/>'


def put(folder: Path, about: Any) -> None:
    (folder / "flows.svg").write_text(SVG)
    (folder / "flows.json").write_text(about if isinstance(about, str) else json.dumps(about))


@pytest.mark.parametrize(
    "about",
    [
        "no json",
        [1],
        {"panels": 3},
        {"panels": [1]},
        {"panels": [{"statistics": 1}]},
        {"panels": [{"statistics": {"attention": 0.5}}]},
    ],
)
def test_a_foreign_description_is_skipped_with_a_warning(
    tmp_path: Path, about: Any, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, about)
    (picture,) = load_pictures(tmp_path)
    assert picture["statistics"] == []
    (line,) = caplog.messages
    assert str(tmp_path / "flows.json") in line


def test_without_a_folder_there_are_none(tmp_path: Path) -> None:
    assert load_pictures(tmp_path / "nowhere") == []
