import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from robust_diffusion.paper.figures.draw import Panel, draw_panels, render, write_figure


def panel(
    weight: np.ndarray, *, title: str = "Heat", num_nodes: int = 12, classes: int = 3
) -> Panel:
    generator = np.random.default_rng(0)
    ends = np.stack([generator.choice(num_nodes, 2, replace=False) for _ in weight])
    return Panel(
        title=title,
        note="a note",
        position=generator.uniform(-1, 1, (num_nodes, 2)),
        label=np.arange(num_nodes) % classes,
        ends=ends,
        weight=weight.astype(float),
    )


@pytest.mark.parametrize("form", ["pdf", "svg"])
def test_the_same_figure_is_the_same_file(form: str) -> None:
    first, second = (render(draw_panels([panel(np.arange(6.0))], "w"), form) for _ in range(2))
    assert first == second


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
