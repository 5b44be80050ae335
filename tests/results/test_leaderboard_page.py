"""The page of the leaderboard: what it says, and what it does in a browser."""

import csv
import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.config import PUBLISHED, PUBLISHED_RECORDS
from robust_diffusion.records import read_records
from robust_diffusion.records.record import Record
from robust_diffusion.results.frame import frame
from robust_diffusion.results.leaderboard import known_model, with_submissions
from robust_diffusion.results.leaderboard_page import (
    ABOUT,
    front_table,
    leaderboard_page,
    read_reported,
    url_of,
)
from tests.results.test_leaderboard import GRID, LOWER, curve
from tests.results.worst_cases import record

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium")


def board(seeds: int) -> list[Record]:
    """Return whole curves of an MLP, a flow, a defence and a GNN, and a flow with a flag."""
    worst = {"gnn_guard": 0.1, "gcn": 0.05, "gin": 0.5}
    records = []
    for seed in range(seeds):
        records += curve("mlp", *[0.6] * 5, clean=0.6, seed=seed)
        for model, last in worst.items():
            records += curve(model, 0.7, 0.65, 0.6, last + 0.01 * seed, last, seed=seed)
        flow: dict[str, Any] = {"flow": "beltrami", "seed": seed}
        runs = [record("graph_pde", budget=size, auto=0.3, **flow) for size in GRID]
        records += [run | {"flags": {"auto": ["not_converged"]}} for run in runs]
    return records


def test_every_model_of_the_published_page_has_a_name_and_a_kind() -> None:
    page = (PUBLISHED / "results" / "leaderboard.md").read_text(encoding="utf-8")
    assert {*re.findall(r'data-kind="(\w+)"', page)} == {"control", "flow", "GNN", "defence"}
    names = re.findall(r'class="name">(?:<a [^>]*>)?([^<]*)', page)
    assert len(names) > 40
    assert not [name for name in names if "_" in name or name.islower()]
    assert "None" not in page


def test_sources_of_models_are_in_the_references() -> None:
    references = (ROOT / "src" / "robust_diffusion" / "references.bib").read_text(encoding="utf-8")
    with (PUBLISHED / "results" / "leaderboard-models.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            assert not row["source"] or f"{{{row['source']}," in references
            assert not row["source"] or url_of(row["source"]).startswith("https://")


def test_claims_are_what_their_sources_print() -> None:
    with (ROOT / "src" / "robust_diffusion" / "paper" / "printed.csv").open() as file:
        printed = {
            (row["table"], row["dataset"], row["model"], row["attack"], row["mean"], row["std"])
            for row in csv.DictReader(file)
        }
    with (PUBLISHED / "successors.csv").open(encoding="utf-8") as file:
        reply = {
            (row["source"], row["model"], row["attack"], row["accuracy"], row["std"])
            for row in csv.DictReader(file)
        }
    tables = {"table 1": "adv", "table 2": "BelGuard", "table 3": "flows", "table 8": "white-box"}
    for claim in read_reported():
        number = claim.attacked, claim.attacked_std
        assert known_model(claim.model).source, claim
        assert claim.place
        if claim.source == "arXiv:2209.07754":
            key = claim.dataset, claim.model, claim.attack.lower()
            assert (tables[claim.place], *key, *number) in printed
        elif "openreview" in claim.source and claim.dataset == "cora":
            assert (claim.place, known_model(claim.model).name, claim.attack, *number) in reply


def test_rows_without_a_rank_are_below_with_their_reason() -> None:
    few, many = (leaderboard_page(frame(board(seeds))) for seeds in (2, 3))
    assert "Not ranked yet" in few
    assert few.count("2 of 3 seeds") == 4
    assert "Not ranked yet" not in many
    ranks = re.findall(r'<tr data-kind="\w+"(?: class="control")?><td data-v="(\d*)">', many)
    # The MLP is a line among them.
    assert ranks == ["", "1", "2", "3", "4"]
    assert "95 % interval" in many


def test_flags_are_footnotes_with_words() -> None:
    page = leaderboard_page(frame(board(3)))
    assert 'Beltrami</a></span><sup><a href="#cora-1">1</a></sup>' in page
    assert re.search(r'<li id="cora-1"><code>not_converged</code>: the three best parts', page)


def test_a_lowered_number_names_its_author_and_keeps_the_earlier_one() -> None:
    records = board(1)
    run = next(run.run for run in records if run.model == "gin")
    forged = replace(LOWER, author="<b>Ada</b>")
    page = leaderboard_page(with_submissions(frame(records), [(run, forged)]), [(run, forged)])
    row = "| GIN | Cora | 5 × 4 | 70.0 (auto) | **65.0** | &lt;b&gt;Ada&lt;/b&gt; | mine |"
    assert row in page
    assert "Nobody has lowered a number yet" in leaderboard_page(frame(records))


def test_the_readme_has_the_widest_gaps_first() -> None:
    lines = front_table(frame(board(1))).splitlines()
    assert "[GNNGuard](https://arxiv.org/abs/2006.08149)" in lines[2]
    assert "[78.50 ± 2.27](https://arxiv.org/abs/2209.07754), SPEIT" in lines[2]
    assert lines[2].rstrip("| ").endswith("10.0")
    assert "MLP" in lines[-1]


def test_accuracies_are_shares_of_the_target_nodes() -> None:
    for record_of in read_records(PUBLISHED_RECORDS):
        if record_of.difficulty == "easy" and record_of.dataset in ABOUT:
            targets = ABOUT[record_of.dataset][1]
            for accuracy in record_of.accuracy.values():
                assert accuracy * targets == pytest.approx(round(accuracy * targets), abs=1e-3)


DRIVER = """
const find = (selector) => [...document.querySelectorAll("#board-cora " + selector)];
const isModel = (row) => !row.classList.contains("divider");
const shown = () => find("tbody tr").filter((row) => isModel(row) && !row.hidden)
  .map((row) => row.dataset.name);
const named = (name) => (element) => element.textContent.trim() === name;
const press = (name) => find("thead button").find(named(name)).click();
const column = (name) => find("thead th").findIndex(named(name));
const values = (name) => find("tbody").map((body) => [...body.rows].filter(isModel)
  .map((row) => row.cells[column(name)].dataset.v));
const curves = () => find("svg g").map((group) => group.dataset.model);
window.addEventListener("load", () => {
  const result = { all: shown(), curves: curves() };
  press("50×50");
  result.descending = values("50×50");
  press("50×50");
  result.ascending = values("50×50");
  const search = find("input[type=search]")[0], kind = find("select")[0];
  search.value = "guard";
  search.dispatchEvent(new Event("input"));
  result.searched = shown();
  search.value = "";
  kind.value = "GNN";
  kind.dispatchEvent(new Event("change"));
  result.kind = shown();
  const box = find("tbody input").find((one) => one.closest("tr").dataset.name === "GIN");
  box.click();
  result.ticked = curves();
  result.points = find("svg g[data-model=GIN] circle").length;
  result.line = find("svg .curve.control").length;
  box.click();
  result.unticked = curves();
  const output = document.createElement("pre");
  output.id = "result";
  output.textContent = JSON.stringify(result);
  document.body.append(output);
});
"""


@pytest.fixture
def browse(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Open a page in a browser, use it, and return what it then shows."""
    markdown = pytest.importorskip("markdown")

    def run(page: str) -> dict[str, Any]:
        body = markdown.markdown(page, extensions=["tables", "toc", "attr_list", "md_in_html"])
        script = (ROOT / "docs" / "js" / "leaderboard.js").read_text(encoding="utf-8")
        style = (ROOT / "docs" / "css" / "leaderboard.css").read_text(encoding="utf-8")
        path = tmp_path / "page.html"
        path.write_text(
            f"<!doctype html><meta charset=utf-8><style>{style}</style><body class=md-typeset>"
            f"{body}<script>{script}</script><script>{DRIVER}</script>",
            encoding="utf-8",
        )
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"]
        options += ["--no-first-run", "--disable-background-networking", "--disable-sync"]
        options += ["--disable-component-update", f"--user-data-dir={tmp_path / 'profile'}"]
        options += ["--virtual-time-budget=5000", "--dump-dom", path.as_uri()]
        command = [str(CHROMIUM), *options]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
        found = re.search(r'<pre id="result">(.*?)</pre>', shown.stdout, re.DOTALL)
        assert found, shown.stdout[-2000:]
        result: dict[str, Any] = json.loads(html.unescape(found[1]))
        return result

    return run


def in_order(values: list[str], *, descending: bool) -> bool:
    numbers = [float(value) for value in values if value]
    gaps_last = [*filter(None, values)] == values[: len(numbers)]
    return gaps_last and numbers == sorted(numbers, reverse=descending)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
@pytest.mark.parametrize("published", [True, False])
def test_the_page_sorts_filters_and_plots(
    browse: Callable[[str], dict[str, Any]], published: bool
) -> None:
    page = (PUBLISHED / "results" / "leaderboard.md").read_text(encoding="utf-8")
    result = browse(page if published else leaderboard_page(frame(board(3))))
    for parts in (result["descending"], result["ascending"]):
        assert sum(map(len, parts)) == len(result["all"])
    assert all(in_order(part, descending=True) for part in result["descending"])
    assert all(in_order(part, descending=False) for part in result["ascending"])
    assert {"MLP", "GNNGuard"} <= {*result["searched"]} < {*result["all"]}
    assert "GCN" in result["kind"]
    assert "GNNGuard" not in result["kind"]
    assert "GNNGuard" in result["curves"]
    assert {*result["ticked"]} - {*result["unticked"]} == {"GIN"}
    assert (result["points"], result["line"]) == (5, 1)
