"""Place of the Hydra configuration, in a checkout and in an installed package."""

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


OmegaConf.register_new_resolver("unless", _unless, replace=True)
