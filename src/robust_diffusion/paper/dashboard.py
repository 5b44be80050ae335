"""W&B dashboards as code: built from the tables' layouts and `conf/dashboards.yaml`."""

import base64
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from hydra.utils import get_class
from omegaconf import OmegaConf

from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.axes import GRAPHS
from robust_diffusion.paper.layout import Line, load_layout
from robust_diffusion.results.cells import CLEAN

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Workspace  # an extra

    from robust_diffusion.attacks import Attack

MOST = 100
"""Most groups of runs in a panel; W&B's default is ten."""

Panels = list[list[str]]
"""Charts: kind, title, vertical and horizontal axis, as in `conf/dashboards.yaml`."""


class Dashboard(NamedTuple):
    """One view of a project's runs; those that agree in all `groups` are shown as their mean.

    A key names a value of a run by its place: `summary:`, `history:`, `config:` (dots lead into
    nested parts) or `run:` (W&B's own, such as its group or one of its tags).
    """

    name: str
    filters: dict[str, str]  # key -> value of the runs that are shown
    groups: list[str]  # keys that tell cells apart
    sections: dict[str, Panels]  # by heading


def table_dashboard(number: int, *, scale: str = "full", fidelity: str = "paper") -> Dashboard:
    """The dashboard of the cells behind one of the paper's tables.

    They are the runs tagged with the table: a cell that several tables asked for is in each.
    """
    layout = load_layout(number)
    if layout.kind == "budgets":
        raise ConfigError(f"--table {number}: shows the configuration, so no run has logged it")
    records, paths = [line.record for line in layout.entries], _distinguishing(layout.entries)
    graphs = [CLEAN, *(line.printed.get("attack", CLEAN) for line in layout.entries)]
    graphs = list(dict.fromkeys(graphs))
    sections = _panels("timed" if layout.kind == "time" else "attacked", graphs[1:])
    varied = [
        ["scatter", f"{{title}} by {p.rpartition('.')[2]}", "summary:accuracy/{attack}", _config(p)]
        for p in paths
        if all(type(record.get(p, 0)) in (int, float) for record in records)
    ]
    if varied and layout.kind != "time":
        sections[f"What table {number} varies"] = _of_each(varied, graphs)
    shown = {"run:Tags": layout.experiment}
    name = f"Table {number}: {layout.label}"
    return _dashboard(name, shown, list(map(_config, paths)), sections, scale, fidelity)


def project_dashboard(*, scale: str = "full", fidelity: str = "paper") -> Dashboard:
    """The dashboard of all cells of one scale and fidelity."""
    groups = ["run:Group", *map(_config, ("dataset", "model", "flow"))]
    sections = _panels("attacked", [graph for graph in GRAPHS if graph != CLEAN])
    return _dashboard("All cells", {}, groups, sections, scale, fidelity)


def _dashboard(name: str, shown: dict[str, str], *parts: Any) -> Dashboard:
    groups, sections, scale, fidelity = parts
    smoke = ", smoke run" if scale == "smoke" else ""
    shown |= {"run:JobType": "cell", _config("scale"): scale, _config("fidelity"): fidelity}
    return Dashboard(f"{name} ({fidelity}{smoke})", shown, groups, sections)


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


def _panels(kind: str, attacks: Sequence[str]) -> dict[str, Panels]:
    stored: Any = OmegaConf.to_container(OmegaConf.load(CONFIG_DIR / "dashboards.yaml"))
    sections = {heading: _of_each(panels, attacks) for heading, panels in stored[kind].items()}
    if kind == "attacked":
        sections["Budgets spent"] = [
            ["bar", f"{GRAPHS[a]}: {count.replace('_', ' ')}", f"summary:spent/{a}/{count}"]
            for a in attacks
            for count in stored["spent"][_kind(a)]
        ]
    return sections


def _of_each(panels: Panels, graphs: Sequence[str]) -> Panels:
    """The panels, those of an attack once for each graph."""
    return [
        [part.replace("{title}", GRAPHS[g]).replace("{attack}", g) for part in panel]
        for panel in panels
        for g in (graphs if "{title}" in panel[1] else [CLEAN])
    ]


def _kind(attack: str) -> str:
    options = OmegaConf.load(CONFIG_DIR / "attack" / f"{attack}.yaml")
    cls: type[Attack] = get_class(OmegaConf.select(options, f"{attack}._target_"))
    return cls.kind


def publish(dashboard: Dashboard, *, entity: str | None, project: str) -> str:
    """Create the view of this name, or update the existing one, and return its address.

    It is a view of the user or team `entity`; of `None`, that of the key.
    """
    import wandb  # an extra

    try:
        if not (entity := entity or wandb.Api().default_entity):
            raise ConfigError("dashboard: W&B knows no user of this key; name one with --entity")
        made = to_workspace(dashboard, entity=entity, project=project)
        # The view's name in its address: 11 lower-case letters and digits.
        digest = sha256(f"{entity}/{project}/{dashboard.name}".encode()).digest()
        slug = base64.b32encode(digest).decode("ascii").lower()[:11]
        if (found := _find(made, slug)) is None:
            # The package names a new view at random and finds none by the name that is shown.
            made._internal_name = f"nw-{slug}-v"
            found = made
        for part in ("name", "sections", "settings", "runset_settings"):
            setattr(found, part, getattr(made, part))
        found.save()  # type: ignore[no-untyped-call]
    except wandb.Error as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        refused = f"dashboard {dashboard.name}: W&B refuses ({reason})"
        raise ConfigError(f"{refused}; run `wandb login`, or add --dry-run") from error
    return str(found.url)


def _find(made: "Workspace", slug: str) -> "Workspace | None":
    place = f"{made.entity}/{made.project}"
    try:
        # Only the path of the address is read.
        return type(made).from_url(f"https://wandb.ai/{place}?nw={slug}")  # type: ignore[no-any-return]
    except ValueError as error:
        if str(error).startswith("Workspace"):
            return None
        if not str(error).startswith("Project"):
            raise
        remedy = "log a run to it first (logger=wandb, then `make wandb-sync`), or name another"
        told = f"W&B project {place}: not found; {remedy} with --entity, --project"
        raise ConfigError(told) from error


def to_workspace(dashboard: Dashboard, *, entity: str, project: str) -> "Workspace":
    """The view as an object of W&B's package, `wandb-workspaces`; nothing is sent."""
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

    def axis(key: str) -> wr.Config | wr.SummaryMetric:
        place, _, name = key.partition(":")
        return wr.Config(name) if place == "config" else wr.SummaryMetric(name)

    def panel(kind: str, title: str, y: str, x: str = "") -> Any:
        metric, over = y.partition(":")[2], x.partition(":")[2]
        if kind == "bar":
            own: Any = {"max_runs_to_show": MOST, "max_bars_to_show": MOST}
            return wr.BarPlot(title=title, metrics=[metric], **own)
        if kind == "line":
            return wr.LinePlot(title=title, x=over, y=[metric], max_runs_to_show=MOST)
        return wr.ScatterPlot(title=title, x=axis(x), y=axis(y))

    def group(key: str, value: str = "") -> ws.Config | ws.Metric:
        place, _, name = key.partition(":")
        first, dot, rest = name.partition(".")
        return ws.Config(f"{first}{value}{dot}{rest}") if place == "config" else ws.Metric(name)

    return ws.Workspace(
        entity=entity,
        project=project,
        name=dashboard.name,
        sections=[
            ws.Section(name=heading, panels=[panel(*of) for of in panels], is_open=True)
            for heading, panels in dashboard.sections.items()
        ],
        settings=ws.WorkspaceSettings(max_runs=MOST),
        runset_settings=ws.RunsetSettings(
            # W&B keeps a nested configuration below `value`, and only in filters it has to be told;
            # of tags a run has several.
            filters=[
                ws.Tags().isin([value]) if key == "run:Tags" else group(key, ".value") == value
                for key, value in dashboard.filters.items()
            ],
            groupby=[group(key) for key in dashboard.groups],
        ),
    )
