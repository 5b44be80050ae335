"""`robust-diffusion data list|verify|table`: what data are there and whether they are right."""

import argparse
import os
import sys
from collections.abc import Sequence

from robust_diffusion.paper.datasets import (
    dataset_statistics,
    list_datasets,
    printed_beside_measured,
    verify_files,
)
from robust_diffusion.results.markdown import print_table


def run_data_command(arguments: Sequence[str]) -> None:
    """Run one of the data commands; exits with 1 if `verify` finds damage.

    Args:
        arguments: What follows `data` on the command line.
    """
    parser = argparse.ArgumentParser(
        prog="robust-diffusion data", description="Look at the datasets; nothing is downloaded."
    )
    parser.add_argument(
        "command",
        choices=["list", "verify", "table"],
        help="list: which are there; verify: each file's hash and each graph's statistics; "
        "table: the paper's dataset table beside ours",
    )
    parser.add_argument(
        "--data-dir",
        default=os.environ.get("ROBUST_DIFFUSION_DATA") or "data",
        help="data directory (default: ROBUST_DIFFUSION_DATA, else data)",
    )
    chosen = parser.parse_args(arguments)
    title = f"data directory {chosen.data_dir}"
    if chosen.command == "list":
        print_table(title, list_datasets(chosen.data_dir), ["dataset", "state", "folder"])
    elif chosen.command == "table":
        frame = printed_beside_measured(chosen.data_dir)
        print_table(f"Table (data), arXiv:2209.07754; {title}", frame, ["dataset", ""])
    else:
        files = verify_files(chosen.data_dir)
        print_table(title, files, list(files.columns))
        graphs = dataset_statistics(chosen.data_dir)
        print_table("Graphs", graphs, ["dataset", "problem"])
        if (files["state"] == "damaged").any() or (graphs["problem"] != "-").any():
            sys.exit(1)
