"""`robust-diffusion table <number>`: one of the paper's tables from the records that are there."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from robust_diffusion.commands.records import (
    add_fidelity_option,
    add_records_option,
    add_scale_option,
    read_chosen,
)
from robust_diffusion.files import write_whole
from robust_diffusion.paper.layout import load_layout, table_numbers
from robust_diffusion.paper.paper_table import PaperTable, build_table
from robust_diffusion.paper.render_csv import render_csv
from robust_diffusion.paper.render_html import render_html
from robust_diffusion.paper.render_latex import render_latex
from robust_diffusion.paper.render_markdown import render_markdown

FORMATS: dict[str, Callable[[PaperTable], str]] = {
    "markdown": render_markdown,
    "latex": render_latex,
    "csv": render_csv,
    "html": render_html,
}


def run_table_command(arguments: Sequence[str]) -> None:
    """Print a table, or write it to a file; nothing is run.

    Args:
        arguments: What follows `table` on the command line.

    Raises:
        DataError: A file of records that was named is not there.
        ConfigError: The file cannot be written.
    """
    parser = argparse.ArgumentParser(
        prog="robust-diffusion table",
        description="Show a table of the paper as the records have it; nothing is run. "
        "experiment=table-<number> runs it; table 4 is `robust-diffusion data table`.",
    )
    parser.add_argument("number", type=int, choices=table_numbers(), help="number of the table")
    add_records_option(parser)
    parser.add_argument(
        "--format", choices=list(FORMATS), default="markdown", help="default: %(default)s"
    )
    add_scale_option(parser)
    add_fidelity_option(parser)
    parser.add_argument("--out", type=Path, help="file to write to (default: standard output)")
    chosen = parser.parse_args(arguments)
    table = build_table(
        load_layout(chosen.number),
        read_chosen(chosen.records),
        scale=chosen.scale,
        fidelity=chosen.fidelity,
    )
    text = FORMATS[chosen.format](table)
    if chosen.out is None:
        sys.stdout.write(text)
    else:
        sys.stdout.write(f"{write_whole(chosen.out, text, option='--out')}\n")
