"""`robust-diffusion audit`: check that perturbed graphs in files are within their budget."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robust_diffusion.commands.evaluate import check_read, own_model, path_option
from robust_diffusion.commands.reading import add_records_option
from robust_diffusion.errors import DataError
from robust_diffusion.results.show import Table, show

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch_geometric.data import Data

    from robust_diffusion.attacks import Budget
    from robust_diffusion.attacks.audit import ViolationKind
    from robust_diffusion.data import GraphDataModule
    from robust_diffusion.evaluation.report import RobustnessReport

_TOLERANCE = 1.5
"""Largest difference, in points of accuracy, that rounding on another processor explains."""

_REMEDIES = {
    "budget": "attack again within the budget, or save the report with the budget that it spent",
    "entry": "save the report again by report.save(), and change none of its files",
    "accuracy": "run it with the rounding of the published runs (PORTABLE=1 of the Makefile), and "
    "check that --weights are the ones that were attacked",
    "graph": "attack open_dataset() of this version, without changes to its features or edges",
}
"""What to do if a report does not verify."""

_READ = ("dataset", "difficulty", "budget", "data", "fidelity", "scale", "experiment", "paths")
"""Config keys that determine the clean graph, its target nodes and the budget."""


def run_audit_command(arguments: Sequence[str]) -> None:
    """Audit perturbed graphs; exit with 1 if one exceeds its budget or a report does not hold.

    Raises:
        DataError: A file cannot be read, or only by running code.
        HydraException: An override is invalid, or a budget is out of range.
    """
    parser = _parser()
    chosen = parser.parse_intermixed_args(arguments)
    # Imported late, so that `--help` and mistyped options are answered at once.
    from robust_diffusion.attacks.audit import perturbed_files
    from robust_diffusion.evaluation.report import REPORT, RobustnessReport

    if (chosen.model is None) != (chosen.weights is None):
        parser.error("--model and --weights: name both or neither")
    paths = [arg for arg in chosen.given if "=" not in arg or Path(arg).exists()]
    if not paths:
        parser.error("name a file or a folder")
    overrides = [arg for arg in chosen.given if arg not in paths]
    chosen.options = [arg for arg in overrides if chosen.model and arg.startswith("model.")]
    overrides = [arg for arg in overrides if arg not in chosen.options]
    reports = {arg for arg in paths if not overrides and (Path(arg) / REPORT).is_file()}
    of_reports = {"--model": chosen.model, "--zoo": chosen.zoo, "--enter": chosen.enter}
    if not reports and (named := [option for option, value in of_reports.items() if value]):
        parser.error(
            f"{named[0]}: only a report has accuracies to measure; name a folder of report.save(), "
            "without overrides"
        )
    if chosen.records and not chosen.enter:
        parser.error("--records: only --enter reads them; leave it out")
    files = {arg: (_graphs if arg in reports else perturbed_files)(Path(arg)) for arg in paths}
    broken, clean_of_all = [], cache(lambda: _clean(overrides))
    for path, members in files.items():
        report = RobustnessReport.load(path) if path in reports else None
        clean = _reported(Path(path), report) if report else clean_of_all()
        exceeded = [_print_audit(file, clean, chosen) for file in members]
        broken += exceeded
        if report:
            remedies = [_REMEDIES["budget"]] * any(exceeded)
            accuracies, more = _print_accuracies(Path(path), report, chosen)
            remedies += more
            broken.append(bool(remedies))
            sys.stdout.writelines(f"{path}: what to do: {remedy}\n" for remedy in remedies)
            if chosen.enter and not remedies:
                broken.append(not _print_entry(Path(path), report, accuracies, chosen))
    if any(broken):
        sys.exit(1)


def _print_entry(
    folder: Path,
    report: "RobustnessReport",
    accuracies: Mapping[str, float],
    chosen: argparse.Namespace,
) -> bool:
    """Enter the graphs of a verified report, and return whether any lowers a number."""
    from robust_diffusion.commands.submit import enter_report

    places = {"author": chosen.enter, "zoo": chosen.zoo, "records": chosen.records}
    lines = [*enter_report(folder, report, accuracies, **places)]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return any(": entered as " in line for line in lines)


def _parser() -> argparse.ArgumentParser:
    """Return the parser of `robust-diffusion audit`."""
    parser = argparse.ArgumentParser(
        prog="robust-diffusion audit",
        description="Check perturbed graphs against the clean graph and a budget, counted from the "
        "graphs themselves. The accuracies of a saved report are measured again. Nothing is "
        "downloaded, and nothing in a file is run.",
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
        help="kind of attack (default: injection if there are new nodes)",
    )
    parser.add_argument(
        "--model",
        metavar="MODULE.CLASS",
        help="class of the model of a report, see --weights; model.KEY=VALUE gives its arguments",
    )
    parser.add_argument(
        "--weights",
        metavar="FILE",
        type=path_option,
        help="state_dict of --model, on which the accuracies of a report are measured again "
        "(default: the model of the zoo that has the weights of the report)",
    )
    parser.add_argument(
        "--zoo", type=path_option, metavar="FOLDER", help="(default: the published one)"
    )
    parser.add_argument(
        "--enter",
        metavar="AUTHOR",
        help="if a report verifies and lowers a number of the leaderboard, add its graph to the "
        "zoo under this name; the earlier number is kept",
    )
    add_records_option(parser, "with --enter, the published ones")
    return parser


@dataclass(frozen=True, eq=False)
class _Clean:
    """Clean graph with its target nodes, its budget, and its name in messages."""

    graph: "Data"
    targets: "Tensor"
    budget: "Budget"
    name: str


def _graphs(folder: Path) -> list[Path]:
    """Return the files of the graphs that the report in a folder lists."""
    from robust_diffusion.evaluation.report import graph_file, read_saved

    return sorted(folder / graph_file(attack.name) for attack in read_saved(folder).attacks)


def _reported(folder: Path, report: "RobustnessReport") -> _Clean:
    name = f"the clean graph of {folder.name}, {report.num_targets} target nodes"
    return _Clean(report.clean, report.clean.target_nodes, report.budget, name)


def _print_accuracies(
    folder: Path, report: "RobustnessReport", chosen: argparse.Namespace
) -> tuple[dict[str, float], list[str]]:
    """Count and measure a report again; return its accuracies, and what to do if it is wrong."""
    from robust_diffusion.evaluation.report import REPORT
    from robust_diffusion.evaluation.saved_graphs import measured_again

    model, wrong = _model(report, chosen), list(_miscounted(folder, report))
    remedies, accuracies = [_REMEDIES["entry"]] * bool(wrong), {}
    if model is None:
        sys.stdout.write(
            f"{folder}: accuracies and flags are not measured, since no model of the zoo has the "
            f"weights {report.weights[:8]}; name yours by --model and --weights\n"
        )
    else:
        frame, flags = measured_again(report, model)
        of_dataset, same_graph = _compared_with_dataset(report)
        title = (
            f"{folder}: {report.model} {report.weights[:8]}, accuracy in %, dataset {of_dataset}"
        )
        sys.stdout.write(show(Table("", frame, title)))
        differs = frame[(frame["reported"] - frame["measured"]).abs() > _TOLERANCE]
        measured = [f"accuracy on {graph}: differs" for graph in differs["graph"]] + flags
        remedies += [_REMEDIES["accuracy"]] * bool(measured)
        remedies += [_REMEDIES["graph"]] * (not same_graph)
        wrong += measured
        accuracies = dict(zip(frame["graph"], frame["measured"], strict=True))
    sys.stdout.writelines(f"{folder / REPORT}: {line}\n" for line in wrong)
    return accuracies, remedies


def _miscounted(folder: Path, report: "RobustnessReport") -> Iterator[str]:
    """Yield the entries of `report.json` that its graphs, or its other entries, contradict."""
    from robust_diffusion.attacks import spent_budget
    from robust_diffusion.evaluation.flags import CONTROLS
    from robust_diffusion.evaluation.report import REPORT
    from robust_diffusion.system.artifact import read_artifact

    attacks = [replace(row, spent=spent_budget(report.clean, row.graph)) for row in report.attacks]
    counted = json.loads(replace(report, attacks=attacks).to_json())
    written = json.loads((folder / REPORT).read_text(encoding="utf-8"))
    for entry, expected, got in _differences(counted, written):
        yield f"{entry}: expected {expected}, got {got}"
    for kind in dict.fromkeys(row.kind for row in report.attacks):
        name = CONTROLS[kind].name
        if name not in report or not report[name].is_control:
            yield f"attacks.{name}: expected as a control of each {kind}, got none"
    for path in sorted({*folder.glob("graph-*.safetensors")} - {*_graphs(folder)}):
        with suppress(DataError):  # other files may be beside a report, such as those of a cache
            if {*read_artifact(path).metadata} == {"attack", "accuracy"}:
                yield f"{path.name}: expected its attack in the report, got none"


def _differences(counted: Any, written: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield path and values of entries of two JSON values that differ, if both have them."""
    if isinstance(counted, dict) and isinstance(written, dict):
        for key in counted.keys() & written.keys() - {"version"}:
            yield from _differences(counted[key], written[key], f"{path}.{key}".lstrip("."))
    elif path == "attacks":
        for row, other in zip(counted, written, strict=True):
            yield from _differences(row, other, f"{path}.{row['name']}")
    elif counted != written:
        yield path, counted, written


def _model(report: "RobustnessReport", chosen: argparse.Namespace) -> "nn.Module | None":
    """Load the model of a report, from the options or the zoo; `None` if neither has it."""
    from robust_diffusion.evaluation.load import build_model, load_weights
    from robust_diffusion.evaluation.zoo import Zoo
    from robust_diffusion.system.tensor_hashes import state_hash

    if chosen.model:
        sizes = report.clean.x.size(1), int(report.clean.y.max()) + 1
        model = build_model(own_model(chosen.model, chosen.options), *sizes)
        load_weights(model, chosen.weights, where=f"--weights {chosen.weights}")
        if state_hash(model.state_dict()) != report.weights:
            raise DataError(f"--weights {chosen.weights}: not the weights of the report")
        return model
    zoo = Zoo.open(chosen.zoo)
    entry = next((entry for entry in zoo.entries if entry.weights == report.weights), None)
    return None if entry is None else zoo.load(entry)


def _compared_with_dataset(report: "RobustnessReport") -> tuple[str, bool]:
    """Describe the dataset of a report, and return whether its clean graph is the dataset's."""
    import torch

    from robust_diffusion.data.folders import dataset_names
    from robust_diffusion.data.inventory import open_dataset
    from robust_diffusion.data.validate import checked_graph
    from robust_diffusion.evaluation.flags import graph_hash

    if report.dataset not in dataset_names():
        return f"{report.dataset or 'of your own'}, whose graph is not checked", True
    datamodule, nodes = open_dataset(report.dataset), report.clean.target_nodes
    same = graph_hash(checked_graph(datamodule.graph, {}), nodes) == report.clean_graph
    words = "" if same else ", but with a different graph"
    if not torch.equal(nodes, datamodule.target_nodes):
        words += f", at other target nodes than its {datamodule.difficulty} ones"
    return f"{report.dataset}{words}", same


def _clean(overrides: Sequence[str]) -> _Clean:
    from hydra.utils import instantiate

    from robust_diffusion.experiment.overrides import composed

    check_read(overrides, _READ, "audit")
    cfg, _ = composed(overrides, _READ, defaults=["download=false"])
    datamodule: GraphDataModule = instantiate(cfg.data)
    budget: Budget = instantiate(cfg.budget)
    graph = datamodule.graph
    name = f"{datamodule.name}, {datamodule.difficulty} test nodes"
    return _Clean(graph, datamodule.target_nodes, budget.resolve(graph.x), name)


def _print_audit(file: Path, clean: _Clean, chosen: argparse.Namespace) -> bool:
    """Audit one file, print the violations, and return whether it exceeds its budget."""
    import pandas as pd

    from robust_diffusion.attacks.audit import audit, read_perturbed

    perturbed = read_perturbed(file, clean.graph)
    kind: ViolationKind = chosen.kind or perturbed.kind
    violations = perturbed.violations + audit(
        *(clean.graph, perturbed), kind=kind, target_nodes=clean.targets, **clean.budget.bounds
    )
    title = f"{file}: {kind} on {clean.name}"
    broken = any(violation.level == "error" for violation in violations)
    if not broken:
        title += "; within its budget"
    if violations:
        frame = pd.DataFrame(map(asdict, violations))[["level", "code", "message"]]
        sys.stdout.write(show(Table("", frame, title)))
    else:
        sys.stdout.write(f"{title}\n")
    return broken
