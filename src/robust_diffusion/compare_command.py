"""`robust-diffusion compare <experiment>`: what each option of a sweep changes."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from robust_diffusion.errors import DataError
from robust_diffusion.evaluation.records import read_records
from robust_diffusion.report.comparison import compare
from robust_diffusion.report.markdown import print_table

DEFAULT_RECORDS = "outputs/records.jsonl"
TITLE = (
    "{experiment}: accuracy in %, and in brackets p of a paired t-test of each change over the "
    "seeds, Holm-corrected over the table"
)


def run_compare_command(arguments: Sequence[str]) -> None:
    """Print the comparison; nothing is run.

    Args:
        arguments: What follows `compare` on the command line.

    Raises:
        DataError: There are no records, or none of this experiment.
    """
    chosen = _parser().parse_args(arguments)
    paths = [Path(path) for path in chosen.records or [DEFAULT_RECORDS]]
    for path in paths:
        if not path.is_file():
            raise DataError(f"--records {path}: not found; name a file that a run has written")
    records = [record for path in paths for record in read_records(path)]
    frame = compare(records, chosen.experiment, scale=chosen.scale, on=chosen.on)
    if frame.empty:
        known = sorted({str(r["experiment"]) for r in records if r.get("experiment")})
        raise DataError(
            f"{chosen.experiment}: no finished cells in {', '.join(map(str, paths))} at "
            f"scale={chosen.scale}; there are {', '.join(known) or 'none of any experiment'}; "
            f"experiment={chosen.experiment} runs it"
        )
    if chosen.format == "csv":
        sys.stdout.write(frame.to_csv(index=False))
    else:
        print_table(TITLE.format(experiment=chosen.experiment), frame, ["setting"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="robust-diffusion compare",
        description="Show what each option of a sweep changes, seed by seed; nothing is run.",
    )
    parser.add_argument("experiment", help="such as readings, or t-end")
    parser.add_argument(
        "--records",
        action="append",
        metavar="FILE",
        help=f"records, as often as there are files (default: {DEFAULT_RECORDS})",
    )
    parser.add_argument(
        "--on",
        choices=["test", "validation"],
        default="test",
        help="accuracy on the test graphs, or on the clean validation nodes (default: test)",
    )
    parser.add_argument("--format", choices=["markdown", "csv"], default="markdown")
    parser.add_argument(
        "--scale", choices=["full", "smoke"], default="full", help="which runs (default: full)"
    )
    return parser
