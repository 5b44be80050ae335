"""`robust-diffusion table <number>`: one of the paper's tables from the records that are there."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from robust_diffusion.commands.reading import add_records_option, add_scale_option, read_chosen
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.commands.options import add_fidelity_option
from robust_diffusion.paper.datasets import published_beside_measured
from robust_diffusion.paper.layout import load_layout, table_name, table_numbers
from robust_diffusion.paper.paper_table import PaperTable, build_table
from robust_diffusion.paper.render_csv import render_csv
from robust_diffusion.paper.render_html import render_html
from robust_diffusion.paper.render_latex import render_latex
from robust_diffusion.paper.render_markdown import render_markdown
from robust_diffusion.results.cells import RecordSet
from robust_diffusion.results.markdown import markdown_table
from robust_diffusion.system.files import write_whole

FORMATS: dict[str, Callable[[PaperTable], str]] = {
    "markdown": render_markdown,
    "latex": render_latex,
    "csv": render_csv,
    "html": render_html,
}

DATASETS = 4
"""Number of the table of datasets, which holds no result."""


def run_table_command(arguments: Sequence[str]) -> None:
    """Print a table, or write it to a file; nothing is run."""
    parser = argparse.ArgumentParser(
        prog="robust-diffusion table",
        description="Show a table of the paper as the records have it; nothing is run. "
        "experiment=table-<number> runs it; table 4, of the datasets, is measured on the files.",
    )
    parser.add_argument("number", type=int, choices=sorted({DATASETS, *table_numbers()}))
    add_records_option(parser)
    parser.add_argument(
        "--format", choices=list(FORMATS), default="markdown", help="default: %(default)s"
    )
    add_scale_option(parser)
    add_fidelity_option(parser)
    parser.add_argument(
        "--data-dir",
        default=os.environ.get("ROBUST_DIFFUSION_DATA") or "data",
        help="data directory of table 4 (default: ROBUST_DIFFUSION_DATA, else data)",
    )
    parser.add_argument("--out", type=Path, help="file to write to (default: standard output)")
    chosen = parser.parse_args(arguments)
    if chosen.number == DATASETS:
        text = _dataset_table(chosen.data_dir, chosen.format)
    else:
        records = RecordSet.of(
            read_chosen(chosen.records), scale=chosen.scale, fidelity=chosen.fidelity
        )
        table = build_table(load_layout(chosen.number), records)
        text = FORMATS[chosen.format](table)
    if chosen.out is None:
        sys.stdout.write(text)
    else:
        sys.stdout.write(f"{write_whole(chosen.out, text, option='--out')}\n")


def _dataset_table(data_dir: str, form: str) -> str:
    if form not in ("markdown", "csv"):
        raise ConfigError(f"--format {form}: not for table 4; use markdown or csv")
    frame = published_beside_measured(data_dir)
    if form == "csv":
        return frame.to_csv(index=False)
    title = f"**{table_name(4)} (data), arXiv:2209.07754.** data directory {data_dir}"
    return f"{title}\n\n{markdown_table(frame, ['dataset', 'statistic'])}\n"
