"""Publish records and what is made of them under experiments/results/.

    python experiments/publish.py outputs/records.jsonl [more.jsonl ...]
    python experiments/publish.py --check

Kept are the latest finished record of each cell and the lines by which experiments asked for it;
what only tells where a cell ran on somebody's disk is left out. With `--keep-replaced` also the
accuracies of the records that give way, from which rounding.md is made. Tables that hold a
number, claims and the report's page are then written from the published records alone, so that
`make publish` rebuilds them to the letter. The tables that the README shows are put in anew.
With `--check` nothing is written: what is not as the records say is named, and that is an error.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

import pandas as pd

from robust_diffusion.commands.records import FIDELITIES, read_chosen
from robust_diffusion.errors import DataError, RobustDiffusionError
from robust_diffusion.evaluation.records import Record, latest_by_cell, read_records
from robust_diffusion.files import write_whole
from robust_diffusion.paper.claims import (
    PublishedEvidence,
    RecordedEvidence,
    judge,
    load_claims,
)
from robust_diffusion.paper.claims.show import side_by_side
from robust_diffusion.paper.misses import render_agreement
from robust_diffusion.paper.page import render_page
from robust_diffusion.paper.paper_table import build_tables
from robust_diffusion.paper.render_markdown import aligned, render_markdown
from robust_diffusion.paper.rounding import by_arithmetic, moved, replaced_by
from robust_diffusion.results.comparison import compare, describe_comparison
from robust_diffusion.results.table import ResultTable, rank, summarize

README = Path(__file__).parents[1] / "README.md"
RESULTS = Path(__file__).with_name("results")
RECORDS = RESULTS / "records.jsonl.gz"
REPLACED = RESULTS / "replaced.jsonl.gz"
FIGURES = RESULTS / "figures"
SHOWN: Mapping[str, Callable[[list[Record]], ResultTable]] = {"tune": rank, "mlp": summarize}
"""Experiments of which each setting is shown: best first on validation nodes, or on test graphs."""

COMPARED = {
    "readings": "test",
    "t-end": "test",
    "seeds": "test",
    "pgd-steps": "test",
    "gcn-svd": "test",
    "graph-sage": "test",
    "edge-ids": "test",
    "splits": "test",
    "degree-leak": "test",
    "tdgia-limits": "test",
    "guard-gradient": "test",
    "tune-check": "validation",
}
"""Experiments whose settings are compared with each other, and on which nodes."""

PLACES = frozenset(["download", "printed", "progress_bar", "root", "urls"])
"""Keys that tell where a cell ran, or what was shown."""

OF_A_RESULT = frozenset(["model", "surrogates", "attacks"])
"""Parts of a configuration of which each key shapes a result."""

IN_README = {"table-3-released": "Cora", "agreement": None, "claims": None}
"""What the README shows of the views: their first tables, or the rows of one dataset."""

ROUNDED = (
    "**What rounding alone decides.** Cells that were recorded twice with the same seeds, in two "
    "arithmetics: by how many points of accuracy they differ, and by how many their means over "
    "seeds do. What cells share is counted once."
)

ROUNDING_ALIKE = (
    "**Where published cells come out bit for bit**, by the arithmetic that each was recorded in: "
    "portable on any x86 processor with AVX2, else on the same model as it was recorded on "
    "(in the records; with a GPU, on the same GPU). `make reproduce` sets it again."
)

VERDICTS = (
    "**Claims of the paper, by the published records of each reading and by its own printed "
    "means.** ✓ supported at 5 %, ✗ not; the mean effect in points of accuracy, or × as a factor. "
    "Claims that no published record decides are left out; `make claims` lists all, with what each "
    "rests on."
)


def main() -> None:
    """Publish the records that are named, then rebuild every view."""
    parser = argparse.ArgumentParser(description="Publish records, and what is made of them.")
    parser.add_argument("records", nargs="*", type=Path, help="none only rebuilds the views")
    parser.add_argument(
        "--keep-replaced",
        action="store_true",
        help="the records differ from those of the same cells by rounding alone; show how far",
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a view is out of date"
    )
    chosen = parser.parse_args()
    if chosen.check and (chosen.records or chosen.keep_replaced):
        parser.error("--check writes nothing; name no records, and leave --keep-replaced out")
    try:
        read = read_chosen([RECORDS, *chosen.records])
        records = list(publishable(read))
        replaced = read_records(REPLACED)
        if chosen.keep_replaced:
            known = {record["cell"] for record in replaced}
            found = replaced_by(records, read_chosen([RECORDS]))
            replaced += [record for record in found if record["cell"] not in known]
        shown = dict(views(records, replaced))
    except RobustDiffusionError as error:
        sys.exit(f"{error}; nothing is published")
    made: dict[Path, str | bytes] = {**shown}
    made[README] = shown_in(README.read_text(encoding="utf-8"), shown)
    if chosen.check:
        sys.exit("\n".join(outdated(made)) or None)
    if chosen.records:
        made[RECORDS] = _compressed(records)
    if chosen.keep_replaced:
        made[REPLACED] = _compressed(replaced)
    # All are made before the first is written.
    for path, text in made.items():
        sys.stdout.write(f"{write_whole(path, text, option='publish:')}\n")


def outdated(made: Mapping[Path, str | bytes]) -> Iterator[str]:
    """What is wrong with the files beside the records, a line each.

    Args:
        made: What they should hold.
    """
    for path, text in made.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            yield f"{path}: not what the records say; run `make publish`"
    for path in sorted({*RESULTS.glob("*.md"), *RESULTS.glob("*.html")} - made.keys()):
        yield f"{path}: made of no records; remove it"


def _compressed(records: Iterable[Record]) -> bytes:
    lines = "".join(json.dumps(record, sort_keys=True) + "\n" for record in records)
    # Without the time of compression, so that the same records are the same file.
    return gzip.compress(lines.encode(), mtime=0)


def publishable(records: list[Record]) -> Iterator[Record]:
    """Each finished cell once, and each experiment's last line that asks for it.

    The order in which they were last asked for stays, since tables go by it; a cell's record comes
    before every reference to it.

    Args:
        records: In the order in which they were appended.
    """
    latest = latest_by_cell(records)
    asks: dict[tuple[str, str], Record] = {}
    for record in records:
        cell = record.get("cell")
        if cell is not None and "error" not in latest.get(cell, {"error": ""}):
            asked = (cell, record["experiment"])
            asks.pop(asked, None)
            asks[asked] = record
    written = set()
    for (cell, experiment), line in asks.items():
        first = cell not in written
        if first:
            written.add(cell)
            yield _without_places(latest[cell])
        if not first or experiment != latest[cell]["experiment"]:
            yield _without_places(_reference(line))


def _reference(record: Record) -> Record:
    """That an experiment asked for a cell, of which another run has left the record."""
    kept = ("cell", "experiment", "scale", "overrides", "directory", "job", "time")
    return {key: record[key] for key in kept if key in record} | {"reference": True}


def views(records: list[Record], replaced: list[Record]) -> Iterable[tuple[Path, str]]:
    """Every file that is made of the published records, with its text.

    Args:
        records: The published ones.
        replaced: What is kept of those before.
    """
    for experiment, on in COMPARED.items():
        frame = compare(records, experiment, on=on)
        if not frame.empty:
            title = f"**experiment={experiment}.** {describe_comparison(frame, on=on)}"
            yield RESULTS / f"{experiment}.md", _in_markdown(title, frame, left=1)
    latest = latest_by_cell(records)
    for experiment, show in SHOWN.items():
        asked = [
            r["cell"]
            for r in records
            if (r["experiment"], r.get("scale", "full")) == (experiment, "full")
        ]
        if cells := [latest[cell] for cell in dict.fromkeys(asked)]:
            shown = show(cells)
            title = f"**experiment={experiment}.** {shown.title}."
            yield RESULTS / f"{experiment}.md", _in_markdown(title, shown.cells, left=0)
    rounded = moved(replaced, records)
    if not rounded.empty:
        yield RESULTS / "rounding.md", _in_markdown(ROUNDED, rounded, left=3)
    alike = by_arithmetic(records)
    if not alike.empty:
        yield RESULTS / "arithmetic.md", _in_markdown(ROUNDING_ALIKE, alike, left=3)
    claims = load_claims()
    recorded = {fidelity: RecordedEvidence(records, fidelity=fidelity) for fidelity in FIDELITIES}
    judged = {
        fidelity: [judge(claim, evidence, claims) for claim in claims.claims.values()]
        for fidelity, evidence in recorded.items()
    }
    printed = [judge(claim, PublishedEvidence(), claims) for claim in claims.claims.values()]
    verdicts = side_by_side(judged, printed)
    yield RESULTS / "claims.md", _in_markdown(VERDICTS, verdicts, left=len(verdicts.columns))
    readings = {fidelity: build_tables(records, fidelity=fidelity) for fidelity in FIDELITIES}
    by_number = {fidelity: list(tables.values()) for fidelity, tables in readings.items()}
    yield RESULTS / "agreement.md", render_agreement(by_number)
    for fidelity, tables in readings.items():
        for table in tables.values():
            if any(entry.runs for _, _, entry in table):
                name = f"table-{table.layout.number}-{fidelity}.md"
                yield RESULTS / name, render_markdown(table)
        figures = FIGURES if FIGURES.is_dir() else None
        page = render_page(records, fidelity=fidelity, figures=figures, tables=tables)
        yield RESULTS / f"report-{fidelity}.html", page


def shown_in(readme: str, made: Mapping[Path, str]) -> str:
    """The README with its tables as the views have them now.

    Args:
        readme: Its text.
        made: The views by their files.
    """
    lines = readme.splitlines()
    for name, dataset in IN_README.items():
        text = made.get(RESULTS / f"{name}.md")
        if text is None:
            continue
        rows = _first_table(text.splitlines())[1]
        if dataset is not None:
            rows = [*rows[:2], *_of_dataset(rows[2:], dataset)]
        start, old = _first_table(lines, _cells(rows[0])[0])
        lines[start : start + len(old)] = rows
    return "\n".join(lines) + "\n"


def _first_table(lines: list[str], corner: str | None = None) -> tuple[int, list[str]]:
    """Where the first table begins, or the first with that corner, and its lines."""
    for start, line in enumerate(lines):
        if line.startswith("|") and corner in (None, _cells(line)[0]):
            return start, list(takewhile(lambda line: line.startswith("|"), lines[start:]))
    raise DataError(f"{README}: no table with {corner} in its corner; put one where it should be")


def _of_dataset(rows: list[str], dataset: str) -> Iterator[str]:
    """Ours and the print's; a row without a dataset goes on with that of the row above."""
    current = ""
    for row in rows:
        current = _cells(row)[0] or current
        if current == dataset and "difference" not in _cells(row):
            yield row


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def _in_markdown(title: str, frame: pd.DataFrame, *, left: int) -> str:
    body = [list(map(str, row)) for row in frame.to_numpy()]
    return "\n".join([title, "", *aligned(list(frame.columns), body, left=left)]) + "\n"


def _without_places(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            key: value if key in OF_A_RESULT else _without_places(value)
            for key, value in node.items()
            if key not in PLACES
        }
    return [_without_places(value) for value in node] if isinstance(node, list) else node


if __name__ == "__main__":
    main()
