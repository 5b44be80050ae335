"""`robust-diffusion report`: every table, chart, claim and figure on one page."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from robust_diffusion.commands.records import (
    add_records_option,
    add_scale_option,
    read_chosen,
)
from robust_diffusion.files import write_whole
from robust_diffusion.paper.commands.options import add_fidelity_option
from robust_diffusion.paper.page import render_page


def run_report_command(arguments: Sequence[str]) -> None:
    """Write the page; nothing is run.

    Args:
        arguments: What follows `report` on the command line.

    Raises:
        DataError: A file of records that was named is not there.
        ConfigError: The page cannot be written.
    """
    chosen = _parser().parse_args(arguments)
    page = render_page(
        read_chosen(chosen.records),
        scale=chosen.scale,
        fidelity=chosen.fidelity,
        figures=chosen.figures,
    )
    sys.stdout.write(f"{write_whole(chosen.out, page, option='--out')}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="robust-diffusion report",
        description="Write every table of the paper as the records have it, with charts, the "
        "paper's claims and the figures, as one HTML file that loads nothing; nothing is run.",
    )
    add_records_option(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("outputs/report.html"),
        help="file to write to (default: %(default)s)",
    )
    add_scale_option(parser)
    add_fidelity_option(parser)
    parser.add_argument(
        "--figures",
        type=Path,
        default=Path("outputs/figures"),
        help="folder of figures drawn before (default: %(default)s)",
    )
    return parser
