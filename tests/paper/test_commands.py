import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper import commands
from robust_diffusion.paper.commands import run_figure_command, run_table_command
from tests.paper.figures.test_build import SMOKE
from tests.paper.records import finished, saved

Cli = Callable[..., Any]
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "figures" / "gode_layer.svg"


@pytest.mark.slow
def test_flows_are_drawn_and_their_numbers_printed(cli: Cli) -> None:
    outcome = cli("figure", "flows", *SMOKE)
    out, rows = outcome.out, outcome.table
    assert out.startswith(
        "Figure (tsne_flows), arXiv:2209.07754; a drawn graph in place of cora, fid"
    )
    assert "SMOKE RUN, says nothing about the paper" in out
    assert [row["panel"] for row in rows[::2]] == ["Heat", "Mean curvature", "Beltrami"]
    assert [row["weight"] for row in rows[:2]] == ["carried", "attention"]
    assert rows[0]["evenness"] == "1.0000"
    (svg,) = Path("outputs/figures").glob("flows-cora-paper-seed0-smoke-*.svg")
    stem = svg.with_suffix("")
    written = [stem.with_suffix(f".{form}") for form in ("pdf", "png", "svg", "json")]
    assert out.splitlines()[-4:] == list(map(str, written))
    about = json.loads(written[-1].read_text())
    assert [panel["title"] for panel in about["panels"]] == [row["panel"] for row in rows[::2]]
    assert sorted(Path("outputs/figures").iterdir()) == sorted(written)
    assert sorted(path.name for path in Path("outputs").iterdir()) == ["figures", "store"]


def test_the_layer_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    run_figure_command(["layer", "--directory", "docs"])
    assert capsys.readouterr().out == "docs/gode_layer.svg\n"
    diagram = Path("docs/gode_layer.svg").read_text(encoding="utf-8")
    assert diagram == DOCUMENTATION.read_text(encoding="utf-8")
    root = ElementTree.fromstring(diagram)
    described = (root.get("aria-labelledby") or "").split()
    assert len(described) == 2
    assert set(described) <= {element.get("id") for element in root}
    assert diagram.count("http") == 1  # the namespace: it loads nothing
    with pytest.raises(ConfigError, match="seed=1: figure layer does not read it"):
        run_figure_command(["layer", "seed=1"])


def test_what_is_not_installed_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith(commands.__package__ + ".fig")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outcome = cli("figure", "flows", *SMOKE)
    assert (outcome.status, outcome.err) == (
        1,
        "error: matplotlib: not installed; pip install 'robust-diffusion[report]'\n",
    )


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    run_table_command(arguments)
    return capsys.readouterr().out


def test_table_4_is_of_the_datasets(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = shown(capsys, "4", "--format=csv", f"--data-dir={tmp_path}").splitlines()
    assert rows[0] == "dataset,statistic,published,measured,equal"
    assert rows[1] == "cora,nodes,2680,no data,-"
    assert len(rows) == 31
    assert shown(capsys, "4", f"--data-dir={tmp_path}").startswith("**Table 4 · datasets (data)")
    with pytest.raises(ConfigError, match="--format html"):
        run_table_command(["4", "--format", "html"])


def test_a_table_without_runs_shows_the_published_ones(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    (row, *_) = [line for line in shown(capsys, "3").splitlines() if "| here" in line]
    assert "±" in row
    assert "published" in caplog.text


def test_a_table_leaves_out_datasets_without_runs(capsys: pytest.CaptureFixture[str]) -> None:
    saved(finished(experiment="table-3"))
    table = shown(capsys, "3")
    assert "Not run: citeseer, pubmed." in table
    assert not any("Pubmed" in line for line in table.splitlines() if line.startswith("|"))
