"""Paths of the configuration and of published files, in a checkout or an installed package."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
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

LISTED = frozenset(["attack", "callbacks", "logger", "surrogate"])
"""Config groups that take a list of options."""

_FIRST = ("flow", "solver", "model", "attack")
"""Config groups whose keys come before keys of the same name in other groups."""


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


def option_names(group: str) -> list[str]:
    """Return the options of a config group."""
    return sorted(path.stem for path in (CONFIG_DIR / group).glob("*.yaml"))


def choices_named(option: str) -> list[str]:
    """Return `group=option` for each group with this option; a surrogate is a model."""
    groups = (f.parent.name for f in CONFIG_DIR.glob("*/*.yaml") if f.stem == option)
    return sorted(f"{group}={option}" for group in groups if group != "surrogate")


@cache
def known_keys() -> dict[str, Any]:
    """Return the keys of runs and their defaults; config groups are keys without a default."""
    folders = {path.name: path for path in CONFIG_DIR.iterdir() if path.is_dir()}
    del folders["hydra"], folders["dataset_model_flow"]
    keys = dict.fromkeys([*_FIRST, *sorted(folders), "attacks", "surrogates", "hydra"])

    def add(node: Any, path: str) -> None:
        for name, child in node.items() if isinstance(node, dict) else ():
            if not str(name).startswith("_") and name not in ("defaults", "hydra"):
                keys.setdefault(f"{path}{name}", child)
                add(child, f"{path}{name}.")

    add(read_yaml(CONFIG_DIR / "config.yaml"), "")
    for group in dict.fromkeys([*_FIRST, *sorted(folders)]):
        for file in sorted(folders[group].glob("**/*.yaml")):
            with file.open(encoding="utf-8") as lines:
                package = re.match(r"# @package (\S+)", lines.readline())
            if package is None or package[1] != "_global_":
                add(read_yaml(file), f"{package[1] if package else group}.")
    return keys


def nearest(word: str, names: Iterable[str]) -> str | None:
    """Return the name that a mistyped word most likely means, by its last part or as a whole."""
    by_form: dict[str, str] = {}
    for name in names:
        for form in (name, name.rpartition(".")[2]):
            by_form.setdefault(form.lower().replace("-", "_"), name)
    plain = word.lower().replace("-", "_")
    close = [plain] if plain in by_form else get_close_matches(plain, by_form, 1, 0.7)
    return by_form[close[0]] if close else None


def unknown_key(override: str) -> str:
    """Return the error of an override whose key no run has, with the key that was meant."""
    key, equals, value = override.partition("=")
    if meant := nearest(key, known_keys()):
        return f"{override}: unknown key; write {meant}{equals}{value}"
    return f"{override}: unknown key; --help lists the most common keys, and --cfg job all of them"


def unknown_option(group: str, option: str, options: Iterable[str]) -> str:
    """Return the error of an unknown option of a config group, with the option that was meant."""
    others = choices_named(option)
    if not others and (close := nearest(option, options)):
        others = [f"{group}={close}"]
    meant = f"write {' or '.join(others)}, or " if others else ""
    return f"{group}={option}: unknown; {meant}use one of {', '.join(options)}"


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
