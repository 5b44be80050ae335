"""`robust-diffusion dashboard`: W&B views of the runs of each experiment, and of all runs."""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from omegaconf import OmegaConf

from robust_diffusion.commands.reading import add_scale_option
from robust_diffusion.config import CONFIG_DIR, read_yaml
from robust_diffusion.errors import ConfigError
from robust_diffusion.experiment.overrides import compose_all
from robust_diffusion.experiment.wandb_log import chosen_mode

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Workspace  # an extra

MOST = 100
"""Largest number of groups in a panel; W&B's default is ten."""

_NUMBERS = re.compile(r"(range|choice|interval|tag|log|e|[-+.,\d() ])+")
"""Numeric values in Hydra's sweep grammar."""


class Dashboard(NamedTuple):
    """View of a project's runs; runs that agree in all `groups` are averaged.

    Keys that start with `config:` are paths in a run's configuration; others are W&B's own.
    """

    name: str
    filters: dict[str, str]  # key -> value of the runs that are shown
    groups: list[str]
    sections: dict[str, list[list[str]]]  # heading -> panels, as in `conf/dashboards.yaml`


def run_dashboard_command(arguments: Sequence[str]) -> None:
    """Create the dashboards, or print what they would show."""
    chosen = _parser().parse_args(arguments)
    paths = sorted(CONFIG_DIR.glob("experiment/*.yaml"))
    logging = [path.stem for path in paths if "/logger: wandb" in path.read_text("utf-8")]
    variant = {"scale": chosen.scale, "fidelity": chosen.fidelity}
    every = {k: build_dashboard(k, **variant) for k in chosen.experiment or ["none", *logging]}
    if chosen.experiment and None in every.values():
        raise ConfigError(f"--experiment {chosen.experiment[0]}: runs nothing; name another")
    dashboards = [dashboard for dashboard in every.values() if dashboard]
    if chosen.dry_run:
        text = json.dumps([dashboard._asdict() for dashboard in dashboards], indent=2)
        sys.stdout.write(f"{text}\n")
        return
    if find_spec("wandb_workspaces") is None:
        remedy = "pip install 'robust-diffusion[dashboards]'"
        raise ConfigError(f"dashboard: needs wandb-workspaces; {remedy}")
    if chosen_mode("auto") != "online":
        remedy = "run `wandb login`, unset WANDB_MODE, or add --dry-run"
        raise ConfigError(f"dashboard: W&B is offline, or there is no key; {remedy}")
    for dashboard in dashboards:
        url = publish(dashboard, entity=chosen.entity, project=chosen.project)
        sys.stdout.write(f"{dashboard.name}: {url}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="robust-diffusion dashboard",
        description="Create saved views of a W&B project: accuracy, training curves, "
        "times and spent budgets of an experiment's runs, and of all runs. Nothing is run.",
    )
    which = "an experiment; may be repeated (default: each that logs to W&B by itself, such as "
    which += "table-3, and all runs)"
    parser.add_argument("--experiment", action="append", metavar="NAME", help=which)
    parser.add_argument("--entity", help="W&B user or team (default: that of the key)")
    project = read_yaml(CONFIG_DIR / "logger" / "wandb.yaml")["project"]
    parser.add_argument("--project", default=project, help="W&B project (default: %(default)s)")
    add_scale_option(parser)
    variants = sorted(path.stem for path in CONFIG_DIR.glob("fidelity/*.yaml"))
    variant = "variant of the equations (default: the experiment's, or paper)"
    parser.add_argument("--fidelity", choices=variants, help=variant)
    shown = "print what the dashboards would show, as JSON; no W&B"
    parser.add_argument("--dry-run", action="store_true", help=shown)
    return parser


def build_dashboard(
    experiment: str = "none", *, scale: str = "full", fidelity: str | None = None
) -> Dashboard | None:
    """Return the dashboard of the runs that an experiment asked for; `none` shows all runs.

    The result is `None` for an experiment without runs. `fidelity` defaults to the experiment's.
    """
    cfg = compose_all([f"experiment={experiment}"])
    stored: Any = OmegaConf.to_container(OmegaConf.load(CONFIG_DIR / "dashboards.yaml"))
    params, grids = cfg.hydra.sweeper.params or {}, cfg.hydra.sweeper.get("grids", [{}])
    swept = [{key: str(v) for key, v in {**params, **grid}.items()} for grid in grids]
    if not swept:
        return None
    attacks = " ".join(grid.get("attack", " ".join(cfg.attacks)) for grid in swept)
    shown, keys, name = {"Tags": experiment}, _varied(swept), experiment
    if experiment == "none":
        shown, keys, name, attacks = {}, ["dataset", "model", "flow"], "All runs", stored["all"]
    names = [attack for attack in dict.fromkeys(re.findall(r"\w+", attacks)) if attack != "none"]
    fidelity = fidelity or cfg.hydra.runtime.choices.fidelity
    shown |= {"JobType": "run", "config:run.scale": scale, "config:run.fidelity": fidelity}
    groups = ["Group"] if experiment == "none" else []
    groups += [f"config:{key}" if "." in key else f"config:run.{key}" for key in keys]
    numbers = [key for key in keys if all(_NUMBERS.fullmatch(g.get(key, "0")) for g in swept)]
    values = {"attack": names, "graph": ["clean", *names], "swept": numbers if any(swept) else []}
    values["modification"] = [attack for attack in names if attack in stored["modifications"]]
    values["injection"] = [attack for attack in names if attack not in stored["modifications"]]
    sections = {
        heading: list(_repeated(panels, values))
        for heading, panels in stored["timed" if cfg.timing else "attacked"].items()
    }
    return Dashboard(
        name=f"{name} ({fidelity}, smoke run)" if scale == "smoke" else f"{name} ({fidelity})",
        filters={key: wanted for key, wanted in shown.items() if key not in groups},
        groups=groups,
        sections={heading: panels for heading, panels in sections.items() if panels},
    )


def _varied(grids: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the keys that vary within a grid or between grids, except the seed."""
    keys = dict.fromkeys(key for grid in grids for key in grid if key != "seed")
    values = {key: {grid.get(key, "") for grid in grids} for key in keys}
    return [key for key, v in values.items() if len(v) > 1 or re.search("[,(]", "".join(v))]


def _repeated(
    panels: Sequence[Sequence[str]], values: Mapping[str, Sequence[str]]
) -> Iterator[list[str]]:
    """Yield each panel for every combination of the values that it names."""
    for panel in panels:
        names = [name for name in values if f"{{{name}}}" in " ".join(panel)]
        for chosen in product(*(values[name] for name in names)):
            yield [part.format(**dict(zip(names, chosen, strict=True))) for part in panel]


def publish(dashboard: Dashboard, *, entity: str | None, project: str) -> str:
    """Create a view, and return its URL.

    It belongs to the user or team `entity`; `None` means the default entity of the API key.
    """
    import wandb  # an extra

    try:
        if not (entity := entity or wandb.Api().default_entity):
            raise ConfigError("dashboard: W&B knows no user of this key; name one with --entity")
        view = to_workspace(dashboard, entity=entity, project=project)
        view.save()  # type: ignore[no-untyped-call]
    except wandb.Error as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        refused = f"dashboard {dashboard.name}: W&B refuses ({reason})"
        raise ConfigError(f"{refused}; run `wandb login`, or add --dry-run") from error
    return str(view.url)


def to_workspace(dashboard: Dashboard, *, entity: str, project: str) -> "Workspace":
    """Convert a dashboard to an object of `wandb-workspaces`, without sending it."""
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

    def panel(kind: str, title: str, value: str, over: str = "") -> Any:
        if kind == "bar":
            most: Any = {"max_runs_to_show": MOST, "max_bars_to_show": MOST}
            return wr.BarPlot(title=title, metrics=[value], **most)
        if kind == "line":
            return wr.LinePlot(title=title, x=over, y=[value], max_runs_to_show=MOST)
        path = over.removeprefix("config:")
        axis = wr.SummaryMetric(over) if path == over else wr.Config(path)
        return wr.ScatterPlot(title=title, x=axis, y=wr.SummaryMetric(value))

    def key(name: str, value: str = "") -> ws.Config | ws.Metric:
        first, dot, rest = (path := name.removeprefix("config:")).partition(".")
        return ws.Metric(name) if path == name else ws.Config(f"{first}{value}{dot}{rest}")

    return ws.Workspace(
        entity=entity,
        project=project,
        name=dashboard.name,
        sections=[
            ws.Section(name=heading, panels=[panel(*parts) for parts in panels], is_open=True)
            for heading, panels in dashboard.sections.items()
        ],
        settings=ws.WorkspaceSettings(max_runs=MOST),
        runset_settings=ws.RunsetSettings(
            # In filters, W&B nests a configuration below `value`; a run has several tags.
            filters=[
                ws.Tags().isin([wanted]) if name == "Tags" else key(name, ".value") == wanted
                for name, wanted in dashboard.filters.items()
            ],
            groupby=[key(name) for name in dashboard.groups],
        ),
    )
