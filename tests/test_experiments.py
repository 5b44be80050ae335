"""What is published is made of the published records."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from robust_diffusion.evaluation import read_records
from robust_diffusion.evaluation.identity import cell_id
from robust_diffusion.evaluation.records import Record
from robust_diffusion.report.layout import load_layout
from robust_diffusion.report.paper_table import build_table
from tests.report.records import failed, finished, reference

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results"


@cache
def publish() -> ModuleType:
    spec = importlib.util.spec_from_file_location("publish", ROOT / "experiments" / "publish.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return read_records(RESULTS / "records.jsonl.gz")


def test_the_readme_shows_what_is_published() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    published = {path: path.read_text(encoding="utf-8") for path in RESULTS.glob("*.md")}
    assert publish().shown_in(readme, published) == readme


def test_the_readme_takes_the_rows_of_one_dataset_and_leaves_the_rest() -> None:
    head = ["| Dataset | Flow |", "|---|---|"]
    view = [*head, "| Cora | 1 |", "|  | difference |", "|  | 2 |", "| Citeseer | 3 |"]
    readme = ["Text.", "| Other |", "|---|", "", *head, "| Cora | 0 |", "More."]
    module = publish()
    made = {module.RESULTS / "table-3-released.md": "\n".join(["Title", "", *view])}
    shown = module.shown_in("\n".join(readme), made).splitlines()
    assert shown == [*readme[:4], *head, "| Cora | 1 |", "|  | 2 |", "More."]


def test_published_configurations_have_the_ids_of_their_cells(records: list[Record]) -> None:
    # Else who runs the same again would not find it done.
    cells = [record for record in records if "config" in record]
    assert cells
    assert [cell_id(record["config"]) for record in cells] == [record["cell"] for record in cells]


def test_published_records_are_whole_and_clean(records: list[Record]) -> None:
    finished_cells = set()
    for record in records:
        if "reference" in record:
            assert record["cell"] in finished_cells
            continue
        finished_cells.add(record["cell"])
        assert "error" not in record
        assert record["revision"]
        assert not record["revision"].endswith("-dirty")
        values = record.get("accuracy", {"none": 0.5}).values()
        assert 0 <= min(values) <= max(values) <= 1
    assert finished_cells


def test_published_views_are_what_the_records_say(records: list[Record]) -> None:
    replaced = read_records(RESULTS / "replaced.jsonl.gz")
    views = dict(publish().views(records, replaced))
    assert set(views) == {*RESULTS.glob("*.md"), *RESULTS.glob("*.html")}
    for path, text in views.items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run `make publish`"


def test_what_is_published_is_each_finished_cell_once() -> None:
    old, new = finished(0.5, cell="a"), finished(0.7, cell="a")
    wrong = failed(cell="b")
    asked = [reference(new, "table-1"), reference(new, "table-1"), reference(wrong, "table-1")]
    published = list(publish().publishable([old, new, wrong, *asked]))
    assert [(r["experiment"], r.get("reference", False)) for r in published] == [
        ("table-3", False),
        ("table-1", True),
    ]
    assert published[0]["accuracy"]["clean"] == 0.7


def test_a_record_comes_before_every_reference_to_it() -> None:
    old, new = finished(0.5, cell="a"), finished(0.5, cell="a", revision="new")
    published = list(publish().publishable([old, reference(old, "table-1"), new]))
    assert [r.get("revision") for r in published] == ["new", None, None]
    # The last two only say in which order the cell was asked for.
    assert [r["experiment"] for r in published] == ["table-3", "table-1", "table-3"]


def test_publishing_keeps_the_variant_that_was_asked_for_last() -> None:
    whole = finished(0.8, cell="whole")
    short = finished(0.3, cell="short", settings={"training": {"max_epochs": 5}})
    records = [whole, short, reference(whole, "table-3")]

    def shown(of: list[Record]) -> list[float | None]:
        return [entry.mean for _, _, entry in build_table(load_layout(3), of)]

    published = list(publish().publishable(records))
    assert 80.0 in shown(records)
    assert shown(published) == shown(records)
    assert list(publish().publishable(published)) == published


def test_a_cell_that_another_experiment_ran_again_stays_in_the_first_one() -> None:
    old, new = finished(0.5, cell="a"), finished(0.7, cell="a", experiment="readings")
    published = list(publish().publishable([old, new]))
    assert [(r["experiment"], r.get("reference", False)) for r in published] == [
        ("readings", False),
        ("table-3", True),
        ("readings", True),
    ]


def test_records_that_cannot_be_published_change_nothing(tmp_path: Path) -> None:
    path, before = tmp_path / "odd.jsonl", (RESULTS / "records.jsonl.gz").read_bytes()
    path.write_text(json.dumps(finished(cell="c0ffee") | {"accuracy": {"clean": None}}))
    for named in (path, tmp_path / "missing.jsonl"):
        command = [sys.executable, str(ROOT / "experiments" / "publish.py"), str(named)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr.endswith("; nothing is published\n")
        assert str(named) in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert (RESULTS / "records.jsonl.gz").read_bytes() == before


def test_published_cells_are_run_again_and_compared(cli: Callable[..., Any]) -> None:
    outcome = cli(
        "-m", "experiment=demo", "scale=smoke", "flow=heat", "seed=1", "logger=none", "attack=speit"
    )
    (record,) = outcome.records
    command = [sys.executable, str(ROOT / "experiments" / "reproduce.py"), "--cells", "1"]

    def again(accuracy: float) -> subprocess.CompletedProcess[str]:
        path = Path("published.jsonl")
        path.write_text(json.dumps(record | {"accuracy": record["accuracy"] | {"clean": accuracy}}))
        options = {"capture_output": True, "text": True, "check": False}
        return subprocess.run([*command, "--records", str(path)], **options)

    same = again(record["accuracy"]["clean"])
    assert same.stdout.endswith("(demo, synthetic, heat, paper, seed 1): the same accuracies\n"), (
        same.stderr
    )
    assert same.returncode == 0
    other = again(record["accuracy"]["clean"] + 0.02)
    assert other.stdout.endswith(": clean -2.00, speit +0.00\n")
    here, record["processor"] = record["processor"], "an abacus"
    elsewhere = again(record["accuracy"]["clean"] + 0.01).stdout
    assert elsewhere.endswith(f"speit +0.00; recorded on an abacus, now on {here}\n")
    assert other.returncode == 1
    assert other.stderr.endswith(f"\n1 further than 1.5 points away: {record['cell']}\n")
    record["overrides"]["training.learning_rate"] = "-1"
    failed_again = again(0.5)
    assert failed_again.returncode == 1
    assert failed_again.stderr.endswith(f"\n1 did not run: {record['cell']}\n")


def test_nothing_tells_where_a_cell_ran() -> None:
    (published,) = publish().publishable([finished()])
    assert published["config"]["data"]["source"]["folder"] == {"path": "cora"}
