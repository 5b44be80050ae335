"""Paths of the configuration and of published files, in a checkout or an installed package."""

import re
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

_PACKAGE = Path(__file__).parent
_ROOT = _PACKAGE if (_PACKAGE / "conf").is_dir() else _PACKAGE.parents[1]

CONFIG_DIR = _ROOT / "conf"
"""Folder of `config.yaml` and the config groups."""

PUBLISHED = _ROOT / "experiments"
"""Folder of the published records, their views, the certificates and the zoo."""

PUBLISHED_RECORDS = PUBLISHED / "results" / "records.jsonl.gz"

DEFAULT_RECORDS = "outputs/records"


def read_yaml(path: str | Path) -> Any:
    """Return the content of a YAML file without interpolations, ten times faster than OmegaConf."""
    with Path(path).open("rb") as file:
        return yaml.load(file, Loader=yaml.CSafeLoader)


def find_published(argument: str) -> str:
    """Replace `experiments/...` in a command-line argument by the path of the published file.

    A file of that name in the current folder takes precedence.
    """
    option, equals, path = argument.rpartition("=")
    file = _ROOT / path
    named = path.startswith(f"{PUBLISHED.name}/") and not Path(path).exists() and file.exists()
    return f"{option}{equals}{file}" if named else argument


def _unless(other: Any, default: Any) -> Any:
    """Resolve `${unless:${.other},default}` in `conf/`: a default that another key overrides."""
    return default if other is None else None


def _named_after(path: Any) -> str:
    """Resolve `${named_after:${.source.path}}` in `conf/`: name a custom graph after its path.

    The name of a dataset of the package gets a prefix, since that dataset has its own results.
    """
    name = re.sub(r"\.(npz|pt)$", "", Path(str(path or "")).name)
    name = re.sub(r"[^\w.+ -]", "_", name).lstrip(".+ -")[:90].rstrip()
    taken = (CONFIG_DIR / "dataset" / f"{name}.yaml").is_file()
    return f"custom_{name}" if taken and name != "custom" else name or "custom"


OmegaConf.register_new_resolver("unless", _unless, replace=True)
OmegaConf.register_new_resolver("named_after", _named_after, replace=True)
