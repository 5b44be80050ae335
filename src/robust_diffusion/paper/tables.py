"""The paper's tables: the `table` section of an experiment as views, fitted to what was run."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, get_args

import pandas as pd

from robust_diffusion.checks import Count, check_choice, check_value
from robust_diffusion.config import CONFIG_DIR, read_yaml
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.axes import AXES, STAND_INS, label_of, with_axes
from robust_diffusion.paper.remarks import by_features, remarks, title_of
from robust_diffusion.records.record import CLEAN, Record
from robust_diffusion.results.evidence import SEEN
from robust_diffusion.results.frame import asked_by, narrow_frame
from robust_diffusion.results.show import Table
from robust_diffusion.results.view import Best, View, cells, compared, ranked
from robust_diffusion.system.numbers import holm

_Kind = Literal["accuracy", "budgets", "time"]

KEYS = frozenset(["number", "name", "label", "caption", "rows", "columns", "best"])
KEYS |= {"kind", "labels", "grouped", "below", "select"}
"""Keys of a layout; those of the second line have defaults."""

PRINTED = Path(__file__).with_name("printed.csv")
"""File of the numbers that the paper prints."""

TABLE_COLUMNS = ["table", "label", "scale", "fidelity", "row", "column", *AXES, "graph", "state"]
TABLE_COLUMNS += ["mean", "std", "q1", "q3", "n", "seeds", "values", "printed_mean", "printed_std"]
TABLE_COLUMNS += ["difference", "factor", "deviations", "p", "p_holm", "test", "rank", "marks"]
"""Columns of `to_frame`."""

FORMER_STAND_INS = frozenset(["planetoid_citeseer"])
"""Datasets that a table shows only if it has no run on a stand-in."""


@dataclass(frozen=True)
class Layout:
    """One of the paper's tables before it is filled."""

    number: int  # in the order of the paper's source
    title: str  # what it is about; the paper has labels alone
    label: str  # in the paper's source and in `printed.csv`
    kind: _Kind  # accuracies of runs, their times, or configured budgets
    caption: str
    grids: tuple[View, ...]  # from top to bottom
    fixed: Mapping[str, str]  # axis -> value that all cells share
    swept: frozenset[str] = frozenset()  # options that the experiment runs through
    unlike: frozenset[str] = frozenset()  # fixed axes whose values are not the paper's

    @property
    def name(self) -> str:
        """Number, and what it is about."""
        return f"Table {self.number} · {self.title}"

    @property
    def experiment(self) -> str:
        """Name of the experiment whose runs it shows."""
        return f"table-{self.number}"

    @property
    def printed(self) -> pd.DataFrame:
        """The printed numbers of all grids."""
        return pd.concat([view.printed for view in self.grids])

    @property
    def datasets(self) -> list[str]:
        """Datasets among the rows and columns."""
        own = "dataset" not in self.fixed
        return list(dict.fromkeys(self.printed["dataset"])) if own and self.grids else []

    def changed(self, change: Any) -> "Layout":
        """Return the layout with other printed numbers, without grids that have none left."""
        grids = (replace(view, printed=change(view.printed)) for view in self.grids)
        return replace(self, grids=tuple(view for view in grids if len(view.printed)))


@dataclass(frozen=True, kw_only=True)
class PaperTable(Table):
    """One of the paper's tables, filled."""

    layout: Layout  # fitted to what was run
    rows: pd.DataFrame  # of the frame that it is made of


def table_numbers() -> list[int]:
    """Return the numbers of the tables that have a layout."""
    paths = CONFIG_DIR.glob("experiment/table-*.yaml")
    laid_out = (path for path in paths if "\ntable:" in path.read_text(encoding="utf-8"))
    return sorted(int(path.stem.removeprefix("table-")) for path in laid_out)


@cache
def load_layout(number: int) -> Layout:
    """Load the layout of a table."""
    path = CONFIG_DIR / "experiment" / f"table-{number}.yaml"
    experiment = read_yaml(path) if path.is_file() else {}
    if "table" not in experiment:
        known = ", ".join(map(str, table_numbers()))
        raise ConfigError(f"table={number}: has no layout; use one of {known}")
    sweeper = experiment.get("hydra", {}).get("sweeper", {})
    grids = [sweeper.get("params", {}), *sweeper.get("grids", [])]
    swept = frozenset(key for grid in grids for key in grid)
    return replace(parse_layout(experiment["table"]), swept=swept)


def parse_layout(section: Mapping[str, Any]) -> Layout:
    """Read the `table` section of an experiment."""
    sections = [section, *([{**section, **section["below"]}] if "below" in section else [])]
    for key in (key for part in sections for key in part):
        check_choice("table", key, KEYS)
    kind = check_choice("table.kind", section.get("kind", "accuracy"), get_args(_Kind))
    printed = printed_numbers(section["label"])
    shown = {axis for part in sections for axis in (*part["rows"], *part["columns"])}
    for axis in shown:
        check_choice("table.axis", axis, AXES)
    fixed = {
        axis: printed[axis].iloc[0]
        for axis in AXES
        if axis not in shown and len({*printed[axis]} - {None}) == 1 and printed[axis].notna().all()
    }
    # Of several values, such as the clean graph and an attack, the last is the table's.
    fixed |= {axis: values[-1] for axis, values in section.get("select", {}).items()}
    return Layout(
        number=check_value("table.number", section["number"], Count),
        title=section["name"],
        label=section["label"],
        kind=kind,  # type: ignore[arg-type]
        caption=section["caption"],
        grids=tuple(_view(part, printed, kind) for part in sections),
        fixed=fixed,
    )


def _view(section: Mapping[str, Any], printed: pd.DataFrame, kind: str) -> View:
    best: Any = check_choice("table.best", section["best"], get_args(Best))
    axes = [*section["rows"], *section["columns"]]
    return View(
        rows=tuple(section["rows"]),
        columns=tuple(section["columns"]),
        value="seconds" if kind == "time" else "accuracy",
        printed=printed.dropna(subset=axes),
        best=best,
        headings=tuple(section["rows"].values()),
        label=partial(_label, section.get("labels", {})),
        grouped=section.get("grouped", True),
        decimals=0 if kind == "budgets" else 2,
        select=section.get("select", {}),
    )


def _label(labels: Mapping[str, str], axis: str, value: str) -> str:
    """Return the text of a value in a table with some labels of its own."""
    return labels.get(value) or label_of(axis, value)


@cache
def _printed() -> pd.DataFrame:
    rows = pd.read_csv(PRINTED, dtype=dict.fromkeys(AXES, str))
    axes = rows[[*AXES]].astype(object)
    return rows.assign(**axes.where(axes.notna(), None))


def printed_numbers(table: str) -> pd.DataFrame:
    """Return the printed numbers of a table by axes, which are text; missing where left blank."""
    rows = _printed()
    return rows[rows["table"] == table]


def build_tables(
    frame: pd.DataFrame, *, scale: str = "full", fidelity: str = "paper"
) -> dict[int, PaperTable]:
    """Build every table of the paper, by number; see `build_table`."""
    numbers = table_numbers()
    return {n: build_table(load_layout(n), frame, scale=scale, fidelity=fidelity) for n in numbers}


def frame_of(layout: Layout, records: Sequence[Record]) -> pd.DataFrame:
    """Return the recorded results that a table needs: its own, an MLP's, and stronger attacks."""
    own = narrow_frame(records, experiments={layout.experiment, "mlp"})
    # Any experiment may have a stronger attack on a model that its attacker knows.
    return narrow_frame(records) if own["threat"].isin(SEEN).any() else own


def datasets_of(frame: pd.DataFrame, layout: Layout, *, scale: str, fidelity: str) -> set[str]:
    """Return the datasets that the experiment of a table ran at one scale, in one variant."""
    asked = asked_by(frame, layout.experiment)
    return {*asked.loc[(asked["scale"] == scale) & (asked["variant"] == fidelity), "dataset"]}


def build_table(
    layout: Layout,
    frame: pd.DataFrame,
    *,
    scale: str = "full",
    fidelity: str = "paper",
    datasets: Collection[str] | None = None,
) -> PaperTable:
    """Fill a layout from the runs of one scale and variant; a cell without a number says why.

    Args:
        layout: What to fill.
        frame: Rows of `frame`.
        scale: `full` or `smoke`.
        fidelity: Variant of the paper.
        datasets: Datasets to show, `None` for all; a remark names the others.
    """
    of_scale = frame[frame["scale"] == scale]
    others = of_scale[(of_scale["variant"] == fidelity) & of_scale["accuracy"].notna()]
    asked = asked_by(of_scale, layout.experiment)
    runs = with_axes(asked[asked["variant"] == fidelity])
    layout, runs = fit_layout(layout, runs)
    whole = layout.datasets
    if datasets is not None and whole:
        layout = layout.changed(lambda printed: printed[printed["dataset"].isin(datasets)])
    if layout.kind == "budgets":
        grids = [_budgets(view) for view in layout.grids]
    else:
        grids = [cells(runs, view, others) for view in layout.grids]
    numbers = pd.concat([grid.assign(grid=place) for place, grid in enumerate(grids)])
    numbers = _tested(numbers.reset_index(drop=True), layout, scale)
    lines = remarks(layout, numbers, runs, frame, scale=scale, fidelity=fidelity)
    if left_out := [name for name in whole if name not in layout.datasets]:
        lines.append(f"Not run: {', '.join(left_out)}.")
    about = {"label": layout.label, "scale": scale, "fidelity": fidelity}
    return PaperTable(
        title_of(layout, scale),
        numbers,
        layout.caption,
        lines,
        views=layout.grids,
        about=about,
        layout=layout,
        rows=runs,
    )


def _budgets(view: View) -> pd.DataFrame:
    """Return the limits of `conf/dataset/` as cells."""
    lines = []
    for row in view.printed.to_dict("records"):
        config = read_yaml(CONFIG_DIR / "dataset" / f"{row['dataset']}.yaml")
        line = {axis: row[axis] for axis in view.axes} | {"graph": CLEAN, "state": "measured"}
        line |= {"mean": float(config["budget"][row["limit"]]), "n": 0}
        line |= dict.fromkeys(["std", "q1", "q3"], math.nan)
        line |= {"index": [], "seeds": [], "values": [], "marks": []}
        line |= {"printed_mean": row["mean"], "printed_std": row["std"]}
        lines.append(line | compared(line, view.value))
    return ranked(pd.DataFrame(lines), view)


def _tested(numbers: pd.DataFrame, layout: Layout, scale: str) -> pd.DataFrame:
    """Correct the tests of all grids; those on the paper's features and on others apart.

    A smoke run is not compared with the paper.
    """
    if scale == "smoke":
        numbers[["difference", "deviations", "factor", "p"]] = math.nan
        numbers["test"] = None
    numbers = numbers.assign(p_holm=math.nan, **layout.fixed).assign(
        **{axis: numbers[axis] for axis in AXES if axis in numbers}
    )
    for part in by_features(numbers):
        numbers.loc[part.index, "p_holm"] = holm(list(part["p"]))
    return numbers


def fit_layout(layout: Layout, runs: pd.DataFrame) -> tuple[Layout, pd.DataFrame]:
    """Return the layout of what was run, with stand-ins for datasets, and the runs that count.

    Times are of the paper's dataset if it was timed, otherwise of the one timed last. Accuracies on
    a stand-in take the place of those of its dataset, or follow them if both were run. If a whole
    table is of one dataset or model, and only others were run, it becomes a table of the newest.
    """
    fixed, finished = dict(layout.fixed), runs[runs["error"].isna()]
    if layout.kind == "time":
        timed = [*finished.loc[finished["timing"].notna(), "dataset"]]
        if timed and fixed["dataset"] not in timed:
            fixed["dataset"] = timed[-1]
        return _fixed(layout, fixed), runs
    stand_ins = {name: x for name, x in STAND_INS.items() if x in {*finished["dataset"]}}
    if stand_ins:
        runs = runs[~runs["dataset"].isin(FORMER_STAND_INS)]
    run = {axis: [*runs[axis].dropna()] for axis in ("dataset", "model")}
    dataset = fixed.get("dataset", "")
    if dataset in stand_ins and dataset not in {*finished["dataset"]}:
        fixed["dataset"] = stand_ins[dataset]
    unlike = [axis for axis in run if run[axis] and fixed.get(axis) not in (None, *run[axis])]
    fixed |= {axis: run[axis][-1] for axis in unlike}

    def stood_in(printed: pd.DataFrame) -> pd.DataFrame:
        blocks = []
        for name, block in printed.groupby("dataset", sort=False):
            stand_in = stand_ins.get(str(name))
            blocks += [block] if stand_in is None or name in run["dataset"] else []
            blocks += [block.assign(dataset=stand_in)] if stand_in else []
        shown = pd.concat(blocks)
        return shown.assign(mean=math.nan, std=math.nan) if unlike else shown

    layout = layout if "dataset" in fixed and not unlike else layout.changed(stood_in)
    return replace(_fixed(layout, fixed), unlike=frozenset(unlike)), runs


def _fixed(layout: Layout, fixed: Mapping[str, str]) -> Layout:
    grids = tuple(replace(view, select={**fixed, **view.select}) for view in layout.grids)
    return replace(layout, grids=grids, fixed=fixed)


def to_frame(table: PaperTable) -> pd.DataFrame:
    """Return one row per cell with every number; all tables have the same columns."""
    cells, views = table.cells, table.layout.grids
    named = [views[cell["grid"]].texts(cell) for cell in cells.to_dict("records")]
    texts: dict[str, Any] = {
        "table": table.layout.number,
        **table.about,
        "row": [" ".join(row) for row, _ in named],
        "column": [" ".join(column) for _, column in named],
        "seeds": [" ".join(map(str, seeds)) for seeds in cells["seeds"]],
        "values": [" ".join(map(str, values)) for values in cells["values"]],
        "marks": ["; ".join(f"{mark.kind}: {mark.text}" for mark in of) for of in cells["marks"]],
    }
    return cells.assign(**texts).reindex(columns=TABLE_COLUMNS)
