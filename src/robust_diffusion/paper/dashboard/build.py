"""What each dashboard shows: made of the tables' layouts and of what a cell logs."""

from collections.abc import Iterator, Sequence

from hydra.utils import get_class
from omegaconf import OmegaConf

from robust_diffusion.attacks import Attack
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.axes import GRAPHS
from robust_diffusion.paper.dashboard.spec import Dashboard, Panel, Section
from robust_diffusion.paper.layout import Layout, Line, load_layout
from robust_diffusion.results.cells import CLEAN

CURVES = {
    "train_loss": "training loss",
    "val_loss": "validation loss",
    "train_accuracy": "training accuracy",
    "val_accuracy": "validation accuracy",
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
"""Per kind of attack the counts of its spent budget that say something."""

CELLS = {"run:JobType": "cell"}


def table_dashboard(number: int, *, scale: str = "full", fidelity: str = "paper") -> Dashboard:
    """The dashboard of the cells that one of the paper's tables stands on.

    A cell that was done before, perhaps for another table, is not logged anew: it is among the
    runs of the table that ran it first.

    Args:
        number: Of the table.
        scale: Which runs: full or smoke.
        fidelity: Which reading of the paper.

    Raises:
        ConfigError: There is no such table, or it has no cells.
    """
    layout = load_layout(number)
    if layout.kind == "budgets":
        raise ConfigError(f"--table {number}: shows the configuration, so no run has logged it")
    lines = [p.at(row, column) for p in layout.parts for row in p.rows for column in p.columns]
    paths = _telling_apart(lines)
    return Dashboard(
        name=_name(f"Table {number}: {layout.label}", scale, fidelity),
        filters={"run:Group": layout.experiment, **CELLS, **_shown(scale, fidelity)},
        groups=tuple(map(_config, paths)),
        sections=tuple(_timed() if layout.kind == "time" else _measured(layout, lines, paths)),
    )


def project_dashboard(*, scale: str = "full", fidelity: str = "paper") -> Dashboard:
    """The dashboard of all cells, whatever they were run for.

    Args:
        scale: Which runs: full or smoke.
        fidelity: Which reading of the paper.
    """
    attacks = [graph for graph in GRAPHS if graph != CLEAN]
    return Dashboard(
        name=_name("All cells", scale, fidelity),
        filters={**CELLS, **_shown(scale, fidelity)},
        groups=("run:Group", *map(_config, ("dataset", "model", "flow"))),
        sections=(_accuracy(attacks), _curves(), _time(attacks), _budgets(attacks)),
    )


def _name(what: str, scale: str, fidelity: str) -> str:
    return f"{what} ({fidelity}{', smoke run' if scale == 'smoke' else ''})"


def _shown(scale: str, fidelity: str) -> dict[str, str]:
    return {_config("scale"): scale, _config("fidelity"): fidelity}


def _config(path: str) -> str:
    """Where a run's configuration has what a record has at a path; see `log_record`."""
    own = path.removeprefix("config.")
    return f"config:{own}" if own != path else f"config:record.{path}"


def _telling_apart(lines: Sequence[Line]) -> list[str]:
    """Paths of a record by which the cells of a table differ; none that others stand for."""
    paths: list[str] = []
    for path in dict.fromkeys(path for line in lines for path in line.record):
        if _distinct(lines, [*paths, path]) > _distinct(lines, paths):
            paths.append(path)
    return paths


def _distinct(lines: Sequence[Line], paths: Sequence[str]) -> int:
    return len({tuple(line.record.get(path) for path in paths) for line in lines})


def _measured(layout: Layout, lines: Sequence[Line], paths: Sequence[str]) -> Iterator[Section]:
    graphs = dict.fromkeys(line.printed["attack"] for line in lines)
    attacks = [graph for graph in graphs if graph != CLEAN]
    yield _accuracy(attacks)
    numbers = [path for path in paths if all(map(_is_number, _values(lines, path)))]
    if numbers:
        yield Section(
            f"What table {layout.number} varies",
            tuple(
                Panel(
                    "scatter",
                    f"{GRAPHS[graph]} by {path.rpartition('.')[2]}",
                    f"summary:accuracy/{graph}",
                    _config(path),
                )
                for path in numbers
                for graph in (CLEAN, *attacks)
            ),
        )
    yield from (_curves(), _time(attacks), _budgets(attacks))


def _values(lines: Sequence[Line], path: str) -> list[object]:
    return [line.record[path] for line in lines if path in line.record]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _accuracy(attacks: Sequence[str]) -> Section:
    bars = [
        Panel("bar", f"Accuracy, {GRAPHS[graph]}", f"summary:accuracy/{graph}")
        for graph in (CLEAN, *attacks)
    ]
    pairs = [
        Panel(
            "scatter",
            f"Clean against {GRAPHS[attack]}",
            f"summary:accuracy/{attack}",
            f"summary:accuracy/{CLEAN}",
        )
        for attack in attacks
    ]
    return Section("Accuracy, clean and attacked", (*bars, *pairs))


def _curves() -> Section:
    panels = [
        Panel("line", title.capitalize(), f"history:{key}", "history:epoch")
        for key, title in CURVES.items()
    ]
    return Section("Training curves", tuple(panels))


def _time(attacks: Sequence[str]) -> Section:
    panels = [
        Panel("bar", "Training [s]", "summary:seconds/train"),
        Panel("bar", "Test [s]", "summary:seconds/test"),
        *(Panel("bar", f"{GRAPHS[a]} [s]", f"summary:seconds/{a}") for a in attacks),
        Panel("bar", "Epochs", "summary:epochs"),
        Panel("bar", "Evaluations of the flow in a forward pass", "summary:nfe"),
        *(
            Panel(
                "scatter",
                f"Training [s] against {GRAPHS[a]}",
                f"summary:accuracy/{a}",
                "summary:seconds/train",
            )
            for a in attacks
        ),
    ]
    return Section("Time", tuple(panels))


def _timed() -> list[Section]:
    panels = (
        Panel("bar", "One step [s], median", "summary:seconds/diffusion"),
        Panel("bar", "Evaluations of the flow in a step", "summary:nfe"),
        Panel("scatter", "Evaluations against time", "summary:seconds/diffusion", "summary:nfe"),
    )
    return [Section("Time", panels)]


def _budgets(attacks: Sequence[str]) -> Section:
    panels = [
        Panel("bar", f"{GRAPHS[attack]}: {title}", f"summary:spent/{attack}/{count}")
        for attack in attacks
        for count, title in SPENT[_kind(attack)].items()
    ]
    return Section("Budgets spent", tuple(panels))


def _kind(attack: str) -> str:
    options = OmegaConf.load(CONFIG_DIR / "attack" / f"{attack}.yaml")
    cls: type[Attack] = get_class(OmegaConf.select(options, f"{attack}._target_"))
    return cls.kind
