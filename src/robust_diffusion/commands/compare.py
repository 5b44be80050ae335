"""`robust-diffusion compare <experiment>`: the effect of each option, or of another model."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from robust_diffusion.commands.reading import (
    add_records_option,
    add_scale_option,
    read_chosen,
)
from robust_diffusion.config import DEFAULT_RECORDS
from robust_diffusion.errors import DataError
from robust_diffusion.records.records import by_experiment
from robust_diffusion.results.comparison import compare_settings, compare_worst_cases
from robust_diffusion.results.frame import named_by_settings, narrow_frame
from robust_diffusion.results.show import show
from robust_diffusion.results.sweeps import flag_notes
from robust_diffusion.results.worst_case import recorded_on


def run_compare_command(arguments: Sequence[str]) -> None:
    """Print the comparison; raise a `DataError` if the experiment has no records."""
    parser = argparse.ArgumentParser(
        prog="robust-diffusion compare",
        description="Show what each option of a sweep changes, seed by seed; nothing is run.",
    )
    add = parser.add_argument
    name = "such as readings, or t-end"
    add("experiment", type=lambda text: text.removeprefix("experiment="), help=name)
    add_records_option(parser)
    on = "accuracy on the test graphs, or on the clean validation nodes (default: test)"
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--on", choices=["test", "validation"], default="test", help=on)
    models = "compare the worst cases of two models or flows instead"
    either.add_argument("--models", nargs=2, metavar=("FIRST", "SECOND"), help=models)
    add("--format", choices=["markdown", "csv"], default="markdown")
    add_scale_option(parser)
    chosen = parser.parse_args(arguments)
    records = read_chosen(chosen.records, required=True)
    names = []
    if chosen.models:
        rows = narrow_frame(records)
        rows = recorded_on(rows[rows["scale"] == chosen.scale], {chosen.experiment})
        table = compare_worst_cases(rows, *chosen.models)
        names = sorted({*named_by_settings(rows)["model"]})
    else:
        compared = by_experiment(records, scale=chosen.scale).get(chosen.experiment, [])
        table = compare_settings(compared, on=chosen.on)
        notes = flag_notes(compared) if chosen.on == "test" else []
        table = replace(table, title=chosen.experiment, notes=notes)
    if table.cells.empty:
        known = names or sorted({name for record in records for name in record.experiments})
        models = f" of both {' and '.join(chosen.models)}" if chosen.models else ""
        files = ", ".join(chosen.records or [DEFAULT_RECORDS])
        raise DataError(
            f"{chosen.experiment}: no finished runs{models} in {files} at "
            f"scale={chosen.scale}; there are {', '.join(known) or 'none of any experiment'}; "
            f"experiment={chosen.experiment} runs it"
        )
    text = table.cells.to_csv(index=False) if chosen.format == "csv" else show(table)
    sys.stdout.write(text)
