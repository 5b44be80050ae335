"""`robust-diffusion audit`: check that perturbed graphs in files are within their budget."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import pandas as pd
import torch
from hydra.utils import instantiate
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import Budget
from robust_diffusion.attacks.audit import (
    ViolationKind,
    audit,
    perturbed_files,
    read_perturbed,
    write_perturbed,
)
from robust_diffusion.commands.evaluate import check_read, own_model
from robust_diffusion.commands.parsers import audit_parser
from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.folders import dataset_names
from robust_diffusion.data.inventory import open_dataset
from robust_diffusion.data.validate import checked_graph
from robust_diffusion.errors import DataError
from robust_diffusion.evaluation.evaluate_model import subject_of
from robust_diffusion.evaluation.flags import graph_hash
from robust_diffusion.evaluation.load import build_model, load_weights
from robust_diffusion.evaluation.report import REPORT, RobustnessReport, graph_file, read_saved
from robust_diffusion.evaluation.zoo import Zoo
from robust_diffusion.experiment.overrides import composed
from robust_diffusion.system.markdown import print_table
from robust_diffusion.system.tensor_hashes import state_hash

_TOLERANCE = 1.5
"""Largest difference, in points of accuracy, that rounding on another processor explains."""

_READ = ("dataset", "difficulty", "budget", "data", "fidelity", "scale", "experiment", "paths")
"""Config keys that determine the clean graph, its target nodes and the budget."""


def run_audit_command(arguments: Sequence[str]) -> None:
    """Audit perturbed graphs; exit with 1 if one exceeds its budget or a report does not hold.

    Raises:
        DataError: A file cannot be read, or only by running code.
        AttackError: A graph cannot be stored in GRB's file format.
        HydraException: An override is invalid, or a budget is out of range.
    """
    parser = audit_parser()
    chosen = parser.parse_intermixed_args(arguments)
    if (chosen.model is None) != (chosen.weights is None):
        parser.error("--model and --weights: name both or neither")
    paths = [arg for arg in chosen.given if "=" not in arg or Path(arg).exists()]
    if not paths:
        parser.error("name a file or a folder")
    overrides = [arg for arg in chosen.given if arg not in paths]
    chosen.options = [arg for arg in overrides if chosen.model and arg.startswith("model.")]
    overrides = [arg for arg in overrides if arg not in chosen.options]
    reports = {arg for arg in paths if not overrides and (Path(arg) / REPORT).is_file()}
    files = {arg: (_graphs if arg in reports else perturbed_files)(Path(arg)) for arg in paths}
    names = [file.stem for members in files.values() for file in members]
    if chosen.export and len(set(names)) < len(names):
        parser.error("--export: several files have one name; export them one by one")
    broken, clean_of_all = [], cache(lambda: _clean(overrides))
    for path, members in files.items():
        report = RobustnessReport.load(path) if path in reports else None
        clean = _reported(Path(path), report) if report else clean_of_all()
        broken += [_print_audit(file, clean, chosen) for file in members]
        if report:
            broken.append(_print_accuracies(Path(path), report, chosen))
    if any(broken):
        sys.exit(1)


@dataclass(frozen=True, eq=False)
class _Clean:
    """Clean graph with its target nodes, its budget, and its name in messages."""

    graph: Data
    targets: Tensor
    budget: Budget
    name: str


def _graphs(folder: Path) -> list[Path]:
    """Return the files of the graphs that the report in a folder lists."""
    return sorted(folder / graph_file(attack.name) for attack in read_saved(folder).attacks)


def _reported(folder: Path, report: RobustnessReport) -> _Clean:
    name = f"the clean graph of {folder.name}, {report.num_targets} target nodes"
    return _Clean(report.clean, report.clean.target_nodes, report.budget, name)


def _print_accuracies(folder: Path, report: RobustnessReport, chosen: argparse.Namespace) -> bool:
    """Measure the accuracies of a report again; return true if they or its graph differ."""
    model = _model(report, chosen)
    if model is None:
        sys.stdout.write(
            f"{folder}: accuracies are not measured, since no model of the zoo has the weights "
            f"{report.weights[:8]}; name yours by --model and --weights\n"
        )
        return False
    frame = measured_again(report, model)
    of_dataset, same_graph = _compared_with_dataset(report)
    title = f"{folder}: {report.model} {report.weights[:8]}, accuracy in %, dataset {of_dataset}"
    print_table(title, frame.round(2), ["graph"])
    differs = (frame["reported"] - frame["measured"]).abs() > _TOLERANCE
    return bool(differs.any()) or not same_graph


def measured_again(report: RobustnessReport, model: nn.Module) -> pd.DataFrame:
    """Return reported and measured accuracy, in %, on the clean and each attacked graph."""
    nodes = report.clean.target_nodes
    subject = subject_of(model, report.clean, nodes, None, seed=report.seed)
    graphs = {"clean": subject.graph} | {row.name: row.graph for row in report.attacks}
    reported = {"clean": report.clean_accuracy} | {row.name: row.accuracy for row in report.attacks}
    with subject.tried.ready():
        rows = {k: (reported[k], subject.accuracy_on(graph)) for k, graph in graphs.items()}
    frame = 100 * pd.DataFrame.from_dict(rows, orient="index", columns=["reported", "measured"])
    return frame.rename_axis("graph").reset_index()


def _model(report: RobustnessReport, chosen: argparse.Namespace) -> nn.Module | None:
    """Load the model of a report, from the options or the zoo; `None` if neither has it."""
    if chosen.model:
        sizes = report.clean.x.size(1), int(report.clean.y.max()) + 1
        model = build_model(own_model(chosen.model, chosen.options), *sizes)
        load_weights(model, Path(chosen.weights), where=f"--weights {chosen.weights}")
        if state_hash(model.state_dict()) != report.weights:
            raise DataError(f"--weights {chosen.weights}: not the weights of the report")
        return model
    zoo = Zoo.open(chosen.zoo)
    entry = next((entry for entry in zoo.entries if entry.weights == report.weights), None)
    return None if entry is None else zoo.load(entry)


def _compared_with_dataset(report: RobustnessReport) -> tuple[str, bool]:
    """Describe the dataset of a report, and return whether its clean graph is the dataset's."""
    if report.dataset not in dataset_names():
        return f"{report.dataset or 'of your own'}, whose graph is not checked", True
    datamodule, nodes = open_dataset(report.dataset), report.clean.target_nodes
    same = graph_hash(checked_graph(datamodule.graph, {}), nodes) == report.clean_graph
    words = "" if same else ", but with a different graph"
    if not torch.equal(nodes, datamodule.target_nodes):
        words += f", at other target nodes than its {datamodule.difficulty} ones"
    return f"{report.dataset}{words}", same


def _clean(overrides: Sequence[str]) -> _Clean:
    check_read(overrides, _READ, "audit")
    cfg, _ = composed(["download=false", *overrides], _READ)
    datamodule: GraphDataModule = instantiate(cfg.data)
    budget: Budget = instantiate(cfg.budget)
    graph = datamodule.graph
    name = f"{datamodule.name}, {datamodule.difficulty} test nodes"
    return _Clean(graph, datamodule.target_nodes, budget.resolve(graph.x), name)


def _print_audit(file: Path, clean: _Clean, chosen: argparse.Namespace) -> bool:
    """Audit one file, print the violations, and return whether it exceeds its budget."""
    perturbed = read_perturbed(file, clean.graph, merge_duplicates=chosen.merge_duplicates)
    kind: ViolationKind = chosen.kind or perturbed.kind
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
