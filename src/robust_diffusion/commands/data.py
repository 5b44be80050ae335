"""`robust-diffusion data list|verify`: inspect datasets."""

import argparse
import os
import sys
from collections.abc import Sequence

from robust_diffusion.data.folders import list_datasets, verify_files
from robust_diffusion.results.show import Table, show


def run_data_command(arguments: Sequence[str]) -> None:
    """Run one of the data commands; exit with 1 if `verify` finds damage."""
    parser = argparse.ArgumentParser(
        prog="robust-diffusion data",
        description="List or verify the datasets; nothing is downloaded.",
    )
    add = parser.add_argument
    text = "list: which are there; verify: each file's hash and each graph's statistics"
    add("command", choices=["list", "verify"], help=text)
    text = "data directory (default: ROBUST_DIFFUSION_DATA, else data)"
    add("--data-dir", default=os.environ.get("ROBUST_DIFFUSION_DATA") or "data", help=text)
    chosen = parser.parse_args(arguments)
    title = f"data directory {chosen.data_dir}"
    if chosen.command == "list":
        sys.stdout.write(show(Table("", list_datasets(chosen.data_dir), title)))
        return
    from robust_diffusion.data.inventory import dataset_statistics  # takes seconds

    files = verify_files(chosen.data_dir)
    graphs = dataset_statistics(chosen.data_dir)
    sys.stdout.write(f"{show(Table('', files, title))}\n{show(Table('', graphs, 'Graphs'))}")
    if (files["state"] == "damaged").any() or (graphs["problem"] != "-").any():
        sys.exit(1)
