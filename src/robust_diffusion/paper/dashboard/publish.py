"""A dashboard as a saved view of a W&B project; importing this needs `wandb-workspaces`."""

import base64
from hashlib import sha256

import wandb
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces.expr import FilterExpr

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.dashboard.spec import Dashboard, Panel

MOST = 100
"""Most groups of runs in a panel; W&B's default is ten."""


def default_entity() -> str:
    """W&B user or team of the key."""
    try:
        entity = wandb.Api().default_entity
    except wandb.Error as error:
        raise _refused("dashboard", error) from error
    if not entity:
        raise ConfigError("dashboard: W&B knows no user of this key; name one with --entity")
    return str(entity)


def publish(dashboard: Dashboard, *, entity: str, project: str) -> str:
    """Create the view of this name, or update the existing one, and return its address."""
    made = to_workspace(dashboard, entity=entity, project=project)
    # The view's name in its address: 11 lower-case letters and digits.
    digest = sha256(f"{entity}/{project}/{dashboard.name}".encode()).digest()
    slug = base64.b32encode(digest).decode("ascii").lower()[:11]
    try:
        found = _find(slug, entity, project)
        if found is None:
            # The package names a new view at random and finds none by the name that is shown.
            made._internal_name = f"nw-{slug}-v"
            found = made
        found.name, found.sections = made.name, made.sections
        found.settings, found.runset_settings = made.settings, made.runset_settings
        found.save()  # type: ignore[no-untyped-call]
        return str(found.url)
    except wandb.Error as error:
        raise _refused(f"dashboard {dashboard.name}", error) from error


def to_workspace(dashboard: Dashboard, *, entity: str, project: str) -> ws.Workspace:
    """The view as an object of W&B's package; nothing is sent."""
    return ws.Workspace(
        entity=entity,
        project=project,
        name=dashboard.name,
        sections=[
            ws.Section(name=s.title, panels=[_panel(p) for p in s.panels], is_open=True)
            for s in dashboard.sections
        ],
        settings=ws.WorkspaceSettings(max_runs=MOST),
        runset_settings=ws.RunsetSettings(
            # W&B keeps a nested configuration below `value`, and only in filters it has to be told.
            filters=[_filter(key, value) for key, value in dashboard.filters.items()],
            groupby=[_group(key) for key in dashboard.groups],
        ),
    )


def _find(slug: str, entity: str, project: str) -> ws.Workspace | None:
    url = f"https://wandb.ai/{entity}/{project}?nw={slug}"  # only its path is read
    try:
        return ws.Workspace.from_url(url)  # type: ignore[no-any-return]
    except ValueError as error:
        if str(error).startswith("Project"):
            raise ConfigError(
                f"W&B project {entity}/{project}: not found; log a run to it first "
                "(logger=wandb, then `make wandb-sync`), or name another with --entity, --project"
            ) from error
        if str(error).startswith("Workspace"):
            return None
        raise


def _refused(what: str, error: wandb.Error) -> ConfigError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return ConfigError(f"{what}: W&B refuses ({reason}); run `wandb login`, or add --dry-run")


def _panel(panel: Panel) -> wr.BarPlot | wr.LinePlot | wr.ScatterPlot:
    y = _name(panel.y)
    if panel.kind == "bar":
        return wr.BarPlot(
            title=panel.title, metrics=[y], max_runs_to_show=MOST, max_bars_to_show=MOST
        )
    assert panel.x is not None
    if panel.kind == "line":
        return wr.LinePlot(title=panel.title, x=_name(panel.x), y=[y], max_runs_to_show=MOST)
    return wr.ScatterPlot(title=panel.title, x=_axis(panel.x), y=_axis(panel.y))


def _name(key: str) -> str:
    return key.partition(":")[2]


def _axis(key: str) -> wr.Config | wr.SummaryMetric:
    return wr.Config(_name(key)) if key.startswith("config:") else wr.SummaryMetric(_name(key))


def _filter(key: str, value: str) -> FilterExpr:
    if key == "run:Tags":  # of which a run has several
        return ws.Tags().isin([value])
    return _group(key, ".value") == value


def _group(key: str, value: str = "") -> ws.Config | ws.Metric:
    if not key.startswith("config:"):
        return ws.Metric(_name(key))
    first, dot, rest = _name(key).partition(".")
    return ws.Config(f"{first}{value}{dot}{rest}")
