"""Place of the Hydra configuration, in a checkout and in an installed package."""

import re
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

_PACKAGED = Path(__file__).parent / "conf"
_CHECKOUT = Path(__file__).parents[2] / "conf"

CONFIG_DIR = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
"""Folder of `config.yaml` and the config groups."""


PUBLISHED = Path(__file__).parents[2] / "experiments"
"""Folder of the published records and the zoo, in a checkout."""


def _unless(given: Any, default: Any) -> Any:
    """`${unless:${.other},default}` in `conf/`: a default that gives way to another key."""
    return default if given is None else None


def _named_after(path: Any) -> str:
    """`${named_after:${.source.path}}` in `conf/`: a graph of the user's by its file or folder.

    No dataset of the package, since that has results of its own.
    """
    name = re.sub(r"\.(npz|pt)$", "", Path(str(path or "")).name)
    name = re.sub(r"[^\w.+ -]", "_", name).lstrip(".+ -")[:90].rstrip()
    own = (CONFIG_DIR / "dataset" / f"{name}.yaml").is_file()
    return f"custom_{name}" if own and name != "custom" else name or "custom"


OmegaConf.register_new_resolver("unless", _unless, replace=True)
OmegaConf.register_new_resolver("named_after", _named_after, replace=True)
