"""`robust-diffusion dashboard`: W&B views of the tables' runs, made of code."""

import argparse
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from omegaconf import OmegaConf

from robust_diffusion.cells.loggers import chosen_mode
from robust_diffusion.commands.reading import add_scale_option
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.commands.options import add_fidelity_option
from robust_diffusion.paper.dashboard import project_dashboard, publish, table_dashboard
from robust_diffusion.paper.layout import load_layout, table_numbers
from robust_diffusion.system.files import write_whole


def run_dashboard_command(arguments: Sequence[str]) -> None:
    """Create or update the dashboards, or show what they would be; nothing is run."""
    chosen = _parser().parse_args(arguments)
    variant = {"scale": chosen.scale, "fidelity": chosen.fidelity}
    every = [number for number in table_numbers() if load_layout(number).kind != "budgets"]
    dashboards = [] if chosen.table else [project_dashboard(**variant)]
    dashboards += [
        table_dashboard(n, **variant) for n in ([chosen.table] if chosen.table else every)
    ]
    text = json.dumps([dashboard._asdict() for dashboard in dashboards], indent=2) + "\n"
    if chosen.json:
        text = f"{write_whole(chosen.json, text, option='--json')}\n"
    if chosen.dry_run or chosen.json:
        sys.stdout.write(text)
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
        description="Create or update saved views of a W&B project: accuracy, training curves, "
        "times and spent budgets of each table's runs, and of all runs. Nothing is run.",
    )
    one = "one table (default: each, and all runs)"
    parser.add_argument("--table", type=int, choices=table_numbers(), help=one)
    parser.add_argument("--entity", help="W&B user or team (default: that of the key)")
    project = OmegaConf.select(OmegaConf.load(CONFIG_DIR / "logger" / "wandb.yaml"), "project")
    parser.add_argument("--project", default=project, help="W&B project (default: %(default)s)")
    add_scale_option(parser)
    add_fidelity_option(parser)
    shown = parser.add_mutually_exclusive_group()
    told = "print what the dashboards would show; no W&B"
    shown.add_argument("--dry-run", action="store_true", help=told)
    shown.add_argument("--json", type=Path, metavar="FILE", help="the same, into a file")
    return parser
