"""`robust-diffusion report`: what the records say on one page."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from robust_diffusion.commands.reading import add_records_option, add_scale_option, read_chosen
from robust_diffusion.paper.commands.options import add_fidelity_option
from robust_diffusion.paper.report import render_report
from robust_diffusion.system.files import write_whole


def run_report_command(arguments: Sequence[str]) -> None:
    """Write the page; nothing is run."""
    chosen = _parser().parse_args(arguments)
    page = render_report(
        read_chosen(chosen.records),
        scale=chosen.scale,
        fidelity=chosen.fidelity,
        figures=chosen.figures,
    )
    sys.stdout.write(f"{write_whole(chosen.out, page, option='--out')}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="robust-diffusion report",
        description="Write the tables of the paper that the records fill, with charts, claims, "
        "worst cases, comparisons and failed cells, as one HTML file that loads nothing; nothing "
        "is run.",
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
