"""`robust-diffusion audit`: whether perturbed graphs in files are within their budget."""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.utils import instantiate

from robust_diffusion.attacks import Budget
from robust_diffusion.attacks.audit import (
    Kind,
    audit,
    perturbed_files,
    read_perturbed,
    write_perturbed,
)
from robust_diffusion.cells.overrides import composed
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError
from robust_diffusion.results.markdown import print_table

READ = ("dataset", "difficulty", "budget", "data", "fidelity", "scale", "experiment", "paths")
"""Options by which the clean graph, its target nodes and the budget are found."""


def run_audit_command(arguments: Sequence[str]) -> None:
    """Audit perturbed graphs; exits with 1 if one breaks its budget.

    Raises:
        DataError: A file that cannot be read, or not without running code.
        AttackError: A graph that GRB's files cannot hold.
        HydraException: An override that means nothing, or a budget out of range.
    """
    parser = argparse.ArgumentParser(
        prog="robust-diffusion audit",
        description="Check perturbed graphs against the clean graph and a budget; what an attack "
        "says of itself is not looked at. Nothing is downloaded, and nothing in a file is run.",
    )
    parser.add_argument(
        "given",
        nargs="+",
        metavar="path|key=value",
        help="a folder with GRB's adj.pkl and features.npy, or entries of the store; and overrides "
        "such as dataset=cora, difficulty=easy, budget.max_injected_nodes=50",
    )
    parser.add_argument(
        "--kind",
        choices=["injection", "modification"],
        help="what the attack may do (default: injection if there are new nodes)",
    )
    parser.add_argument(
        "--merge-duplicates",
        action="store_true",
        help="count an edge once that is listed several times, as by GRB 0.1.0",
    )
    parser.add_argument(
        "--export",
        metavar="FOLDER",
        type=Path,
        help="also write each graph as GRB's adj.pkl and features.npy, to FOLDER/<its file's name>",
    )
    chosen = parser.parse_intermixed_args(arguments)
    paths = [given for given in chosen.given if "=" not in given or Path(given).exists()]
    if not paths:
        parser.error("name a file or a folder")
    datamodule, budget = _clean([given for given in chosen.given if given not in paths])
    files = [file for path in paths for file in perturbed_files(Path(path))]
    if chosen.export and len({file.stem for file in files}) < len(files):
        parser.error("--export: several files have one name; export them one by one")
    broken = [_print_audit(file, datamodule, budget, chosen) for file in files]
    if any(broken):
        sys.exit(1)


def _clean(overrides: Sequence[str]) -> tuple[GraphDataModule, Budget]:
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        if re.split(r"[./]", override.get_key_element().lstrip("+~"))[0] not in READ:
            raise ConfigError(
                f"{override.input_line}: audit does not read it; use {', '.join(READ)}"
            )
    cfg, _ = composed(["download=false", *overrides], READ)
    datamodule: GraphDataModule = instantiate(cfg.data)
    budget: Budget = instantiate(cfg.budget)
    return datamodule, budget.resolve(datamodule.graph.x)


def _print_audit(
    file: Path, datamodule: GraphDataModule, budget: Budget, chosen: argparse.Namespace
) -> bool:
    """Audit one file, print what was found, and return true if its budget is broken."""
    clean = datamodule.graph
    perturbed = read_perturbed(file, clean, merge_duplicates=chosen.merge_duplicates)
    kind: Kind = chosen.kind or perturbed.kind
    violations = perturbed.violations + audit(
        clean, perturbed, kind=kind, target_nodes=datamodule.target_nodes, **asdict(budget)
    )
    title = f"{file}: {kind} on {datamodule.name}, {datamodule.difficulty} test nodes"
    broken = any(violation.level == "error" for violation in violations)
    if not broken:
        title += "; within its budget"
    if violations:
        frame = pd.DataFrame(map(asdict, violations))[["level", "code", "message"]]
        print_table(title, frame, list(frame.columns))
    else:
        sys.stdout.write(f"{title}\n")
    if chosen.export:
        written = write_perturbed(chosen.export / file.stem, perturbed, clean)
        sys.stdout.write(f"{written}\n")
    return broken
