"""Publish records, and rebuild the views made from them, under experiments/results/.

    python experiments/publish.py outputs/records [more ...]
    python experiments/publish.py --check

The published records are the finished record of each run and the sweeps that asked for it, without
keys that only describe where a run was executed. Every view (tables that hold a number,
comparisons, claims, the leaderboard and its first rows in the README) is written from them alone.
With `--check`, nothing is written, and it is an error if a view is out of date.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from robust_diffusion.commands.reading import read_chosen
from robust_diffusion.config import PUBLISHED_RECORDS
from robust_diffusion.errors import DataError, RobustDiffusionError
from robust_diffusion.paper.agreement import render_agreement
from robust_diffusion.paper.claims import judge_all, load_claims, render_claims
from robust_diffusion.paper.commands import FIDELITIES
from robust_diffusion.paper.report import studies
from robust_diffusion.paper.tables import build_tables
from robust_diffusion.records.record import Config, Record
from robust_diffusion.records.records import archive
from robust_diffusion.records.submission import read_submissions
from robust_diffusion.results.frame import narrow_frame
from robust_diffusion.results.leaderboard import with_submissions
from robust_diffusion.results.leaderboard_page import front_table, leaderboard_page
from robust_diffusion.results.show import show
from robust_diffusion.system.files import write_whole
from robust_diffusion.system.portable import PORTABLE, named_in

RESULTS = Path(__file__).with_name("results")

PLACES = frozenset(["download", "printed", "progress_bar", "root", "urls"])
"""Keys of a configuration that only describe where a run was executed, or what it printed."""

KEPT_WHOLE = frozenset(["model", "surrogates", "attacks"])
"""Parts of a configuration in which every key shapes the result."""

FROZEN = frozenset(["budget-curve.md", "exchange.md", "switches.md", "targets.md", "tune.md"])
"""Pages of finished studies, which no code writes any more."""

README = RESULTS.parents[1] / "README.md"

FRONT = ("<!-- leaderboard -->", "<!-- /leaderboard -->")
"""Lines around the first rows of the leaderboard in the README."""


def main() -> None:
    """Publish the records on the command line, then rebuild every view."""
    parser = argparse.ArgumentParser(description="Publish records, and what is made of them.")
    parser.add_argument("records", nargs="*", type=Path, help="none only rebuilds the views")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a view is out of date"
    )
    chosen = parser.parse_args()
    if chosen.check and chosen.records:
        parser.error("--check writes nothing; name no records")
    try:
        records = [r for r in read_chosen([PUBLISHED_RECORDS, *chosen.records]) if r.error is None]
        check_arithmetic(records)
        made: dict[Path, str | bytes] = dict(views(records))
    except RobustDiffusionError as error:
        sys.exit(f"{error}; nothing is published")
    if chosen.check:
        sys.exit("\n".join(outdated(made)) or None)
    if chosen.records:
        made[PUBLISHED_RECORDS] = archive(map(without_places, records))
    # Every file is made before the first is written.
    for path, content in made.items():
        sys.stdout.write(f"{write_whole(path, content, option='publish:')}\n")


def check_arithmetic(records: list[Record]) -> None:
    """Check that all accuracies were computed with portable arithmetic.

    Raises:
        DataError: One was not, so that it can differ on another machine.
    """
    for record in records:
        if record.accuracy and named_in(record.processor or "") != PORTABLE:
            raise DataError(
                f"record {record.run}: expected arithmetic that rounds alike on all machines, "
                f"got {record.processor}; run it again with PORTABLE=1"
            )
        if record.accuracy and record.backend == "torch":
            raise DataError(
                f"record {record.run}: expected the compiled kernels, got backend=torch, which "
                "rounds differently; run it again where backend=compiled works"
            )


def views(records: list[Record]) -> Iterator[tuple[Path, str]]:
    """Yield the path and text of every view of the published records.

    Args:
        records: The published records.
    """
    frame = narrow_frame(records)
    for name, table in studies(records, frame):
        if f"{name}.md" not in FROZEN:
            yield RESULTS / f"{name}.md", show(table)
    submissions = [*read_submissions(RESULTS.parent / "zoo" / "index.json")]
    lowered = with_submissions(frame, submissions)
    yield RESULTS / "leaderboard.md", leaderboard_page(lowered, submissions)
    yield README, _with_front(README.read_text(encoding="utf-8"), front_table(lowered))
    variants = {name: build_tables(frame, fidelity=name) for name in FIDELITIES}
    claims = load_claims()
    verdicts = judge_all(claims, frame, FIDELITIES)
    yield RESULTS / "claims.md", render_claims(verdicts, claims, worst_of=FIDELITIES[0])
    agreement = render_agreement({name: list(of.values()) for name, of in variants.items()})
    yield RESULTS / "agreement.md", agreement
    for fidelity, tables in variants.items():
        for number, of_paper in tables.items():
            if of_paper.cells["n"].any():
                yield RESULTS / f"table-{number}-{fidelity}.md", show(of_paper)


def outdated(made: Mapping[Path, str | bytes]) -> Iterator[str]:
    """Yield one message per view that is missing, out of date, or not made from records.

    Args:
        made: Path of each view -> its current content.
    """
    for path, text in made.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            yield f"{path}: not what the records say; run `make publish`"
    for path in sorted({*RESULTS.glob("*.md")} - {RESULTS / name for name in FROZEN} - made.keys()):
        yield f"{path}: made of no records; remove it"


def _with_front(page: str, table: str) -> str:
    before, after = page.split(FRONT[0])[0], page.split(FRONT[1])[1]
    return f"{before}{FRONT[0]}\n\n{table}\n\n{FRONT[1]}{after}"


def without_places(record: Record) -> Record:
    """Return a record without the keys that only describe where its run was executed."""
    config = Config.model_validate(_without_keys(record.config.whole))
    return record.model_copy(update={"config": config})


def _without_keys(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            key: _without_folders(value) if key in KEPT_WHOLE else _without_keys(value)
            for key, value in node.items()
            if key not in PLACES
        }
    return [_without_keys(value) for value in node] if isinstance(node, list) else node


def _without_folders(parts: Any) -> Any:
    """Drop the folder from which an attack reads a graph; it is not part of a run's id."""
    if not isinstance(parts, dict):
        return parts
    return {
        name: {key: value for key, value in part.items() if key != "data_dir"}
        if isinstance(part, dict)
        else part
        for name, part in parts.items()
    }


if __name__ == "__main__":
    main()
