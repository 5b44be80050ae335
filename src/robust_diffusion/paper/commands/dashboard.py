"""`robust-diffusion dashboard`: W&B views of the tables' runs, made of code."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from omegaconf import OmegaConf

from robust_diffusion.commands.records import (
    add_scale_option,
)
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError
from robust_diffusion.files import write_whole
from robust_diffusion.paper.commands.options import add_fidelity_option
from robust_diffusion.paper.dashboard import Dashboard, project_dashboard, table_dashboard
from robust_diffusion.paper.layout import load_layout, table_numbers
from robust_diffusion.results.loggers import has_key

OFFLINE = ("offline", "disabled")


def run_dashboard_command(arguments: Sequence[str]) -> None:
    """Create or update the dashboards, or show what they would be; nothing is run.

    Args:
        arguments: What follows `dashboard` on the command line.

    Raises:
        ConfigError: A package or a key is missing, W&B refuses, or a file cannot be written.
    """
    chosen = _parser().parse_args(arguments)
    dashboards = _dashboards(chosen.table, scale=chosen.scale, fidelity=chosen.fidelity)
    if chosen.dry_run or chosen.json:
        _show(dashboards, chosen.json)
        return
    _check_ready()
    # Imported late: the package is optional, and the server is asked who is there.
    from robust_diffusion.paper.dashboard.publish import default_entity, publish

    entity = chosen.entity or default_entity()
    for dashboard in dashboards:
        url = publish(dashboard, entity=entity, project=chosen.project)
        sys.stdout.write(f"{dashboard.name}: {url}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="robust-diffusion dashboard",
        description="Create or update saved views of a W&B project: accuracy, training curves, "
        "times and spent budgets of each table's runs, and of all runs. Nothing is run.",
    )
    parser.add_argument(
        "--table", type=int, choices=table_numbers(), help="one table (default: each, and all runs)"
    )
    parser.add_argument("--entity", help="W&B user or team (default: that of the key)")
    project = OmegaConf.select(OmegaConf.load(CONFIG_DIR / "logger" / "wandb.yaml"), "project")
    parser.add_argument("--project", default=project, help="W&B project (default: %(default)s)")
    add_scale_option(parser)
    add_fidelity_option(parser)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--dry-run", action="store_true", help="print what the dashboards would show; no W&B"
    )
    shown.add_argument("--json", type=Path, metavar="FILE", help="the same, into a file")
    return parser


def _dashboards(number: int | None, *, scale: str, fidelity: str) -> list[Dashboard]:
    if number is not None:
        return [table_dashboard(number, scale=scale, fidelity=fidelity)]
    numbers = [n for n in table_numbers() if load_layout(n).kind != "budgets"]
    return [
        project_dashboard(scale=scale, fidelity=fidelity),
        *(table_dashboard(n, scale=scale, fidelity=fidelity) for n in numbers),
    ]


def _show(dashboards: Sequence[Dashboard], path: Path | None) -> None:
    text = json.dumps([asdict(dashboard) for dashboard in dashboards], indent=2) + "\n"
    if path is None:
        sys.stdout.write(text)
    else:
        sys.stdout.write(f"{write_whole(path, text, option='--json')}\n")


def _check_ready() -> None:
    """Refuse what could not reach W&B, before it asks or waits."""
    if find_spec("wandb_workspaces") is None:
        raise ConfigError(
            "dashboard: needs wandb-workspaces; pip install 'robust-diffusion[dashboards]'"
        )
    if (mode := os.environ.get("WANDB_MODE")) in OFFLINE:
        raise ConfigError(
            f"WANDB_MODE={mode}: no dashboard without W&B; unset it, or add --dry-run"
        )
    if not has_key():
        raise ConfigError("dashboard: no W&B key; run `wandb login`, or add --dry-run")
