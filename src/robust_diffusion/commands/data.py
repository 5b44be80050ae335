"""`robust-diffusion data list|verify`: data that are there, and checks of them."""

import argparse
import os
import sys
from collections.abc import Sequence

from robust_diffusion.data.inventory import dataset_statistics, list_datasets, verify_files
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
        choices=["list", "verify"],
        help="list: which are there; verify: each file's hash and each graph's statistics",
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
    else:
        files = verify_files(chosen.data_dir)
        print_table(title, files, list(files.columns))
        graphs = dataset_statistics(chosen.data_dir)
        print_table("Graphs", graphs, ["dataset", "problem"])
        if (files["state"] == "damaged").any() or (graphs["problem"] != "-").any():
            sys.exit(1)
