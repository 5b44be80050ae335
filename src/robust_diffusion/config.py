"""Place of the Hydra configuration, in a checkout and in an installed package."""

from pathlib import Path

_PACKAGED = Path(__file__).parent / "conf"
_CHECKOUT = Path(__file__).parents[2] / "conf"

CONFIG_DIR = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
"""Folder of `config.yaml` and the config groups."""
