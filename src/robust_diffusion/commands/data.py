"""`robust-diffusion data list|verify|export`: inspect datasets, or write one in GRB's layout."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from robust_diffusion.data.folders import list_datasets, verify_files
from robust_diffusion.system.markdown import print_table


def run_data_command(arguments: Sequence[str]) -> None:
    """Run one of the data commands; exit with 1 if `verify` finds damage.

    Raises:
        ConfigError: The dataset is unknown, or the folder holds a dataset or cannot be written.
        DataError: The data to export are missing or damaged.
    """
    parser = argparse.ArgumentParser(
        prog="robust-diffusion data",
        description="List, verify or export the datasets; nothing is downloaded.",
    )
    add = parser.add_argument
    text = "list: which are there; verify: each file's hash and each graph's statistics; "
    text += "export: write DATASET to FOLDER in GRB's layout"
    add("command", choices=["list", "verify", "export"], help=text)
    text = "of export: a dataset's name, or the path of your own graph; and where to write it"
    add("exported", nargs="*", metavar="DATASET FOLDER", help=text)
    text = "data directory (default: ROBUST_DIFFUSION_DATA, else data)"
    add("--data-dir", default=os.environ.get("ROBUST_DIFFUSION_DATA") or "data", help=text)
    add("--overwrite", action="store_true", help="let export write over a dataset that is there")
    chosen = parser.parse_args(arguments)
    if len(chosen.exported) != (2 if chosen.command == "export" else 0):
        parser.error("export takes DATASET and FOLDER; list and verify take neither")
    title = f"data directory {chosen.data_dir}"
    if chosen.command == "list":
        print_table(title, list_datasets(chosen.data_dir), ["dataset", "state", "folder"])
        return
    # Imported late, since this takes seconds.
    from robust_diffusion.data.inventory import dataset_statistics, load_dataset
    from robust_diffusion.data.sources import write_grb

    if chosen.command == "export":
        dataset, folder = chosen.exported
        graph = load_dataset(dataset, chosen.data_dir)
        write_grb(graph, Path(folder), overwrite=chosen.overwrite)
        sys.stdout.write(f"{dataset} is in {folder}, features raw; in GRB: feat_norm='arctan'\n")
        return
    files = verify_files(chosen.data_dir)
    print_table(title, files, list(files.columns))
    graphs = dataset_statistics(chosen.data_dir)
    print_table("Graphs", graphs, ["dataset", "problem"])
    if (files["state"] == "damaged").any() or (graphs["problem"] != "-").any():
        sys.exit(1)
