"""Dashboards built from the tables' layouts and the values that a cell logs."""

from collections.abc import Iterable, Sequence

from hydra.utils import get_class
from omegaconf import OmegaConf

from robust_diffusion.attacks import Attack
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.axes import GRAPHS
from robust_diffusion.paper.dashboard.spec import Dashboard, Panel, Section
from robust_diffusion.paper.layout import Line, load_layout
from robust_diffusion.results.cells import CLEAN

CURVES = {
    "train_loss": "Training loss",
    "val_loss": "Validation loss",
    "train_accuracy": "Training accuracy",
    "val_accuracy": "Validation accuracy",
}

SPENT = {
    "injection": {"injected_nodes": "nodes injected", "injected_edges": "edges injected"},
    "modification": {
        "changed_nodes": "nodes changed",
        "largest_feature_change": "largest change of a feature",
        "added_edges": "edges added",
        "removed_edges": "edges removed",
    },
}
"""Counts of a spent budget, per kind of attack."""

TIMED = Section(
    "Time",
    (
        Panel("bar", "One step [s], median", "summary:seconds/diffusion"),
        Panel("bar", "Evaluations of the flow in a step", "summary:nfe"),
        Panel("scatter", "Evaluations against time", "summary:seconds/diffusion", "summary:nfe"),
    ),
)
"""The only section of a table of times."""


def table_dashboard(number: int, *, scale: str = "full", fidelity: str = "paper") -> Dashboard:
    """The dashboard of the cells behind one of the paper's tables.

    They are the runs tagged with the table: a cell that several tables asked for is in each.
    """
    layout = load_layout(number)
    if layout.kind == "budgets":
        raise ConfigError(f"--table {number}: shows the configuration, so no run has logged it")
    lines = [p.at(row, column) for p in layout.parts for row in p.rows for column in p.columns]
    paths = _distinguishing(lines)
    sections: tuple[Section, ...] = (TIMED,)
    if layout.kind != "time":
        graphs = dict.fromkeys(line.printed["attack"] for line in lines)
        sections = _sections([graph for graph in graphs if graph != CLEAN])
        if varied := _varied(lines, paths, graphs):
            sections = (sections[0], Section(f"What table {number} varies", varied), *sections[1:])
    name = f"Table {number}: {layout.label}"
    asked_for = {"run:Tags": layout.experiment}
    return _dashboard(name, asked_for, map(_config, paths), sections, scale, fidelity)


def project_dashboard(*, scale: str = "full", fidelity: str = "paper") -> Dashboard:
    """The dashboard of all cells of one scale and fidelity."""
    sections = _sections([graph for graph in GRAPHS if graph != CLEAN])
    groups = ("run:Group", *map(_config, ("dataset", "model", "flow")))
    return _dashboard("All cells", {}, groups, sections, scale, fidelity)


def _dashboard(
    name: str,
    filters: dict[str, str],
    groups: Iterable[str],
    sections: tuple[Section, ...],
    scale: str,
    fidelity: str,
) -> Dashboard:
    smoke = ", smoke run" if scale == "smoke" else ""
    shown = {"run:JobType": "cell", _config("scale"): scale, _config("fidelity"): fidelity}
    return Dashboard(f"{name} ({fidelity}{smoke})", filters | shown, tuple(groups), sections)


def _config(path: str) -> str:
    """Key of a record's path in a run's configuration; see `log_record`."""
    own = path.removeprefix("config.")
    return f"config:{own}" if own != path else f"config:record.{path}"


def _distinguishing(lines: Sequence[Line]) -> list[str]:
    """Smallest list of record paths that tells apart the cells of a table."""

    def distinct(paths: Sequence[str]) -> int:
        return len({tuple(line.record.get(path) for path in paths) for line in lines})

    paths: list[str] = []
    for path in dict.fromkeys(path for line in lines for path in line.record):
        if distinct([*paths, path]) > distinct(paths):
            paths.append(path)
    return paths


def _varied(
    lines: Sequence[Line], paths: Sequence[str], graphs: Iterable[str]
) -> tuple[Panel, ...]:
    """Accuracy against every number that a table varies."""
    ordered = (CLEAN, *(graph for graph in graphs if graph != CLEAN))
    values = {p: [line.record[p] for line in lines if p in line.record] for p in paths}
    return tuple(
        Panel(
            "scatter",
            f"{GRAPHS[graph]} by {path.rpartition('.')[2]}",
            f"summary:accuracy/{graph}",
            _config(path),
        )
        for path, found in values.items()
        if all(isinstance(v, int | float) and not isinstance(v, bool) for v in found)
        for graph in ordered
    )


def _sections(attacks: Sequence[str]) -> tuple[Section, ...]:
    """Accuracy, training curves, times and budgets of cells that were attacked."""
    accuracy = {graph: f"summary:accuracy/{graph}" for graph in (CLEAN, *attacks)}
    seconds = {attack: f"summary:seconds/{attack}" for attack in ("train", "test", *attacks)}
    accuracies = [Panel("bar", f"Accuracy, {GRAPHS[g]}", key) for g, key in accuracy.items()]
    accuracies += [
        Panel("scatter", f"Clean against {GRAPHS[attack]}", accuracy[attack], accuracy[CLEAN])
        for attack in attacks
    ]
    curves = [Panel("line", CURVES[key], f"history:{key}", "history:epoch") for key in CURVES]
    times = [
        Panel("bar", "Training [s]", seconds["train"]),
        Panel("bar", "Test [s]", seconds["test"]),
        *(Panel("bar", f"{GRAPHS[attack]} [s]", seconds[attack]) for attack in attacks),
        Panel("bar", "Epochs", "summary:epochs"),
        Panel("bar", "Evaluations of the flow in a forward pass", "summary:nfe"),
    ]
    times += [
        Panel("scatter", f"Training [s] against {GRAPHS[a]}", accuracy[a], seconds["train"])
        for a in attacks
    ]
    spent = [
        Panel("bar", f"{GRAPHS[attack]}: {title}", f"summary:spent/{attack}/{count}")
        for attack in attacks
        for count, title in SPENT[_kind(attack)].items()
    ]
    return (
        Section("Accuracy, clean and attacked", tuple(accuracies)),
        Section("Training curves", tuple(curves)),
        Section("Time", tuple(times)),
        Section("Budgets spent", tuple(spent)),
    )


def _kind(attack: str) -> str:
    options = OmegaConf.load(CONFIG_DIR / "attack" / f"{attack}.yaml")
    cls: type[Attack] = get_class(OmegaConf.select(options, f"{attack}._target_"))
    return cls.kind
