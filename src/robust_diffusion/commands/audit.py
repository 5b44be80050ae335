"""`robust-diffusion audit`: whether perturbed graphs in files are within their budget."""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import pandas as pd
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.utils import instantiate
from torch import Tensor
from torch_geometric.data import Data

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
from robust_diffusion.robustness.report import RobustnessReport
from robust_diffusion.robustness.saved_report import REPORT

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
        help="a folder with GRB's adj.pkl and features.npy, or entries of the store, and overrides "
        "such as dataset=cora, difficulty=easy, budget.max_injected_nodes=50; or a folder of "
        "report.save(), which has its own clean graph, targets and budget",
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
    overrides = [given for given in chosen.given if given not in paths]
    files = {path: perturbed_files(Path(path)) for path in paths}
    names = [file.stem for found in files.values() for file in found]
    if chosen.export and len(set(names)) < len(names):
        parser.error("--export: several files have one name; export them one by one")
    broken, clean_of_all = [], cache(lambda: _clean(overrides))
    for path, found in files.items():
        of_report = not overrides and (Path(path) / REPORT).is_file()
        clean = _reported(Path(path)) if of_report else clean_of_all()
        broken += [_print_audit(file, clean, chosen) for file in found]
    if any(broken):
        sys.exit(1)


@dataclass(frozen=True, eq=False)
class _Clean:
    """The graph before the attack, what may be done to it, and its name."""

    graph: Data
    targets: Tensor
    budget: Budget
    name: str


def _reported(folder: Path) -> _Clean:
    report = RobustnessReport.load(folder)
    assert report.clean is not None
    name = f"the clean graph of {folder.name}, {report.num_targets} target nodes"
    return _Clean(report.clean, report.clean.target_nodes, report.budget, name)


def _clean(overrides: Sequence[str]) -> _Clean:
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        if re.split(r"[./]", override.get_key_element().lstrip("+~"))[0] not in READ:
            raise ConfigError(
                f"{override.input_line}: audit does not read it; use {', '.join(READ)}"
            )
    cfg, _ = composed(["download=false", *overrides], READ)
    datamodule: GraphDataModule = instantiate(cfg.data)
    budget: Budget = instantiate(cfg.budget)
    graph = datamodule.graph
    name = f"{datamodule.name}, {datamodule.difficulty} test nodes"
    return _Clean(graph, datamodule.target_nodes, budget.resolve(graph.x), name)


def _print_audit(file: Path, clean: _Clean, chosen: argparse.Namespace) -> bool:
    """Audit one file, print what was found, and return true if its budget is broken."""
    perturbed = read_perturbed(file, clean.graph, merge_duplicates=chosen.merge_duplicates)
    kind: Kind = chosen.kind or perturbed.kind
    violations = perturbed.violations + audit(
        *(clean.graph, perturbed), kind=kind, target_nodes=clean.targets, **asdict(clean.budget)
    )
    title = f"{file}: {kind} on {clean.name}"
    broken = any(violation.level == "error" for violation in violations)
    if not broken:
        title += "; within its budget"
    if violations:
        frame = pd.DataFrame(map(asdict, violations))[["level", "code", "message"]]
        print_table(title, frame, list(frame.columns))
    else:
        sys.stdout.write(f"{title}\n")
    if chosen.export:
        written = write_perturbed(chosen.export / file.stem, perturbed, clean.graph)
        sys.stdout.write(f"{written}\n")
    return broken
