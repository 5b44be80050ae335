"""Settings of a command line that no part of a run reads.

A run reads its parts, whatever they refer to by `${...}`, and nothing else. A class that leaves
some of this unread says so by a class method `unread(options)`; see `Unread`.
"""

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import reduce
from typing import Any, Protocol, runtime_checkable

from omegaconf import DictConfig, OmegaConf

from robust_diffusion.checks import imported
from robust_diffusion.errors import ConfigError
from robust_diffusion.records.header import OWN_FLOW, by_key
from robust_diffusion.records.identity import (
    ATTACKED_PARTS,
    PRESENTATION_KEYS,
    TESTED_PARTS,
    TIMED_PARTS,
)

REFERENCE = re.compile(r"\$\{(?:oc\.select:)?([\w.]+)[^{}]*\}")
"""Reference to another key in a YAML file."""

_KEY_OF = {"attack": "attacks", "surrogate": "surrogates", "solver": "solver.method"}
"""Config group -> the key that its option sets, if that has another name."""


_OF_ATTACKS = frozenset(["budget", "threat", "surrogate", "surrogates"])
_REMEDY, _OF_OWN_CLASS = "remove it", "give its arguments as model.KEY=VALUE"


@runtime_checkable
class Unread(Protocol):
    """A class that does not read all of its options, or of the settings that all attacks share."""

    def unread(self, options: Mapping[str, Any], /) -> Collection[str]:
        """Return keys of `options`, such as `solver.method`, and shared ones: `budget.epsilon`."""


def unread_settings(
    cfg: DictConfig,
    overrides: Iterable[str],
    choices: Mapping[str, Any],
    read: Collection[str] = (),
) -> dict[str, str]:
    """Return a message for each typed setting that nothing reads, by key.

    Args:
        cfg: The composed configuration, with its references unresolved.
        overrides: The overrides of the command line; those with `++` may remain unread.
        choices: Option of each config group.
        read: Top-level keys that a command reads, or keys below them; empty for those of a run.
    """
    keys = set(_keys_read(cfg, read))
    messages = {}
    for name, value in by_key(o for o in overrides if not o.startswith("++")).items():
        key = name.rpartition("@")[2]  # the group flow@model.flow sets model.flow
        if key.startswith("~") or key.split(".")[0] in PRESENTATION_KEYS:
            continue
        if value == "none" and "." not in key:  # an empty option, which sets nothing
            continue
        if key == "flow" and choices.get(OWN_FLOW) == value:  # what the model has anyway
            continue
        # The name of a custom graph refers to its path even if another graph replaces it.
        replaced = key.startswith("dataset.source.") and cfg.data.source != cfg.dataset.source
        if key == "threat.name" or replaced or not _is_among(_KEY_OF.get(key, key), keys):
            messages[name] = f"{name}={value}: {_reason(key, cfg, choices, read)}"
    return messages


def _is_among(key: str, keys: Iterable[str]) -> bool:
    """Return whether one of the keys is this one, or inside it, or has it inside."""
    return any(f"{k}.".startswith(f"{key}.") or key.startswith(f"{k}.") for k in keys)


def _reason(key: str, cfg: DictConfig, choices: Mapping[str, Any], read: Collection[str]) -> str:
    """Return who does not read a key, why, and what to do about it."""
    part, model, threat = key.split(".")[0], choices.get("model"), choices.get("threat")
    attacks = f"attack={','.join(map(str, cfg.attacks)) or 'none'}"
    own = choices.get(OWN_FLOW)
    if key == "threat.name":
        return f"names what threat={threat} is; set threat instead"
    if part == "certificate":
        return "not read by any run; write certify first"
    of_attacks, of_model = part in _OF_ATTACKS, part in ("flow", "solver")
    of_own_flow = f"set model.{key} instead" if "." in key else _REMEDY
    readers = (
        (bool(cfg.timing) and not read, "timing, which trains and attacks nothing", _REMEDY),
        (of_attacks and not cfg.attacks, attacks, _REMEDY),
        (part == "budget", f"{attacks}, which {_described(cfg)}", _REMEDY),
        (part == "threat", f"{attacks}, which does not depend on it", _REMEDY),
        (of_attacks, f"threat={threat}, which attacks the victim itself", _REMEDY),
        (of_model and read and "model" not in read, "a class of your own", _OF_OWN_CLASS),
        (of_model and "flow" not in cfg.model, f"model={model}, which has none", _REMEDY),
        (part == "flow", f"model={model}, which has its own, {own}", of_own_flow),
        (part == "solver", f"flow={own or choices.get('flow')}, which has a predictor", _REMEDY),
        (
            key.startswith("dataset.source.") and cfg.data.source != cfg.dataset.source,
            f"scale={choices.get('scale', 'full')}, which draws a small graph instead",
            _REMEDY,
        ),
        (True, "any part of this run", _REMEDY),
    )
    reader, remedy = next((who, what) for holds, who, what in readers if holds)
    return f"not read by {reader}; {remedy}"


def _described(cfg: DictConfig) -> str:
    """Return what the attacks of a run do."""
    classes = [_class_of(attack) for attack in cfg.attacks.values()]
    if all(getattr(cls, "kind", "") == "injection" for cls in classes):
        return "injects"
    only_flips = not any(getattr(cls, "changes_features", True) for cls in classes)
    return "only flips edges" if only_flips else "changes edges and features that are there"


def _keys_read(cfg: DictConfig, read: Collection[str]) -> Iterator[str]:
    """Yield every key that the parts read, directly or through references."""
    raw: Any = OmegaConf.to_container(cfg, resolve=False)
    seen: set[str] = set()
    todo = list(_roots(cfg, read))
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        more, is_leaf = _inside(raw, cfg, path)
        todo += more
        if is_leaf:
            yield path


def _roots(cfg: DictConfig, read: Collection[str]) -> Iterator[str]:
    """Yield the parts that a run or a command reads; of those that attacks share, single keys."""
    parts = {*TESTED_PARTS, *ATTACKED_PARTS} if cfg.attacks else {*TESTED_PARTS}
    if read:
        known = {*TESTED_PARTS, *ATTACKED_PARTS, "certificate"}
        parts = {_KEY_OF.get(key, key) for key in read}
        parts = {key for key in parts if key.split(".")[0] in known}
    elif cfg.timing:
        parts = {*TIMED_PARTS, "training.trainer"}
    unread: frozenset[str] = frozenset()
    if "attacks" in parts and not cfg.attacks:
        parts = {key for key in parts if key.split(".")[0] not in ("budget", "threat")}
    elif "attacks" in parts:
        unread = reduce(frozenset.__and__, map(_unread_by, cfg.attacks.values()))
    for part in parts:
        if part in ("budget", "threat"):
            yield from (key for name in cfg[part] if (key := f"{part}.{name}") not in unread)
        elif part not in unread:
            yield part


def _inside(raw: Any, cfg: DictConfig, path: str) -> tuple[list[str], bool]:
    """Return what a key contains or refers to, and whether it is a value and not a part."""
    node, at = raw, path.split(".")
    for i, name in enumerate(at):
        node = node.get(name) if isinstance(node, Mapping) else None
        whole = REFERENCE.fullmatch(node) if isinstance(node, str) else None
        if whole and i + 1 < len(at):
            return [".".join([_absolute(whole[1], at[:i]), *at[i + 1 :]])], True
    if isinstance(node, Mapping) and node:
        unread = _unread_by(OmegaConf.select(cfg, path))
        return [k for name in node for k in _children(cfg, path, str(name), unread)], False
    text = node if isinstance(node, str) else ""
    return [_absolute(match[1], at[:-1]) for match in REFERENCE.finditer(text)], True


def _children(cfg: DictConfig, path: str, name: str, unread: Collection[str]) -> list[str]:
    """Return the key of a child, or keys inside it if it is read in part."""
    if name in unread:
        return []
    if not any(key.startswith(f"{name}.") for key in unread):
        return [f"{path}.{name}"]
    inside = OmegaConf.select(cfg, f"{path}.{name}")
    names = [f"{name}.{key}" for key in inside if f"{name}.{key}" not in unread]
    return [f"{path}.{key}" for key in names]


def _absolute(reference: str, parent: list[str]) -> str:
    """Return the key that a reference means, which may be relative to its parent: `.step_size`."""
    name = reference.lstrip(".")
    if (dots := len(reference) - len(name)) == 0:
        return name
    return ".".join([*parent[: len(parent) - dots + 1], name])


def _class_of(node: Any) -> Any:
    """Return the class of a part; `None` before torch is imported, since that takes seconds."""
    target = str(node.get("_target_")) if isinstance(node, DictConfig) else ""
    with suppress(ConfigError):  # reported where the class is needed
        return imported(target) if target and "torch" in sys.modules else None
    return None


def _unread_by(node: Any) -> frozenset[str]:
    """Return what the class of a part does not read."""
    cls = _class_of(node)
    if not isinstance(cls, Unread):
        return frozenset()
    options: Any = OmegaConf.to_container(node, resolve=True)
    return frozenset(cls.unread(options))
