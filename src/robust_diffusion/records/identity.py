"""The identity of a cell: a hash of everything that its result depends on."""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from robust_diffusion.records.content import by_content
from robust_diffusion.system.hashes import canonical_json

PRESENTATION_KEYS = frozenset(
    [
        *("backend", "download", "experiment", "force", "logger", "paths", "scale", "table"),
        "time_limit",
    ]
)
"""Top-level keys that say what is shown, where, or how fast, and change no result."""

TESTED_PARTS = ("callbacks", "data", "model", "seed", "threads", "training")
"""Top-level keys that every cell with a test accuracy reads; the others only feed these."""

ATTACKED_PARTS = ("attacks", "budget", "threat")
"""Top-level keys that a cell with an attack reads besides."""

TIMED_PARTS = ("data", "model", "seed", "threads", "timing")
"""Top-level keys that a timing cell reads, besides the trainer, which names the device."""

SOLVERS = (
    "solver",
    "model.solver",
    *(
        f"{part}.{name}.solver"
        for part in ("surrogates", "threat.surrogates")
        for name in ("beltrami_guard", "graph_pde")
    ),
)
"""Paths of the solver and of its copies in what is trained."""

TRAINERS = ("trainer", "training.trainer", "threat.fit.trainer")
"""Paths of the trainer and of its copies."""

DEFAULTS_FOR_MISSING_KEYS: Mapping[str, tuple[Any, ...]] = {
    **{path: ({}, None) for path in ("adversary", "training.adversary")},
    "callbacks": ({}, None),
    "certificate": ({}, None),
    "threads": (1,),
    "timing": ({}, None),
    **{
        path: ({"_target_": "robust_diffusion.data.FullBatch"},)
        for path in ("batching", "data.batching")
    },
    "model.variant": ("original",),
    "model.negative_degree": ("zero",),
    "threat.surrogates.gcn_svd.negative_degree": ("zero",),
    "threat.surrogates.appnp.variant": ("original",),
    "threat.surrogates.graph_sage.variant": ("original",),
    "data.edge_values": ("ones",),
    "data.transductive": (False,),
    "attacks.fgsm.loss": ("cross_entropy",),
    "attacks.pgd.loss": ("cross_entropy",),
    "attacks.speit.loss": ("cross_entropy",),
    "threat.seeding": ("cell",),
    "data.source.split_seed": (None,),
    "dataset.source.split_seed": (None,),
    **{f"{path}.step_size": (None,) for path in SOLVERS},
    **{f"{path}.strategy": ("auto",) for path in TRAINERS},
}
"""Values of keys that older records lack: with one of these, a key is left out of the hash."""

IGNORED_KEYS = re.compile(
    r"(.*\.)?_partial_|dataset\.(edge_values|printed)|(training|threat\.fit)\.progress_bar"
    r"|(.*\.)?solver\.max_nfe"
    r"|threat\.fit\.key|attacks\.\w+\.data_dir|data(set)?\.source\.folder\.(.*\.)?(download|root|urls)"
)
"""Paths of further keys that change no result; a flow's own `key` or `root` does."""

MOVED = {
    f"robust_diffusion.{now}": f"robust_diffusion.{before}"
    for now, before in {
        "cells.timing.StepTiming": "evaluation.timing.StepTiming",
        "integrators.solver.Solver": "solver.Solver",
        "robustness.BlackBox": "evaluation.BlackBox",
        "robustness.WhiteBox": "evaluation.WhiteBox",
    }.items()
}
"""Classes that a `_target_` may name, and the places that published cells know them by."""

PUBLISHED_IDS = Path(__file__).with_name("published_ids.json")
"""Ids under which cells were published when unread parts still counted, by their present hash.

Whoever changes what is hashed hashes the published configurations anew, without this table."""


class RecordedConfig(dict[str, Any]):
    """A configuration that was read from a record, and that nobody changes."""

    @cached_property
    def hashed(self) -> dict[str, Any]:
        """As of `hashed_config`, for the many tables that ask for it."""
        return hashed_config({**self})


def hashed_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a resolved configuration that can change a result, presentation left out."""
    if isinstance(config, RecordedConfig):
        return config.hashed
    return {
        key: _hashed(value, key)
        for key, value in config.items()
        if key not in PRESENTATION_KEYS and value not in DEFAULTS_FOR_MISSING_KEYS.get(key, ())
    }


def recorded_settings(record: Mapping[str, Any]) -> dict[str, Any]:
    """The hashed configuration of a record; its model includes the user's code and files.

    Records that differ in these are of different settings, and tables average neither with the
    other.
    """
    settings = hashed_config(record.get("config", {}))
    content = {key: record[key] for key in ("user_code", "user_files") if record.get(key)}
    if content or "threads" in settings:
        content |= {"threads": settings.get("threads", 1)}
        settings = settings | {"model": settings.get("model", {}) | content}
    return settings


def parts_read(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a resolved configuration that the cell itself reads.

    A flow and a solver are part of the model that has one, surrogates of the threat that has some.
    As top-level keys they only feed these, and are no part of a cell that has none.
    """
    hashed = hashed_config(config)
    if "timing" in hashed:
        read = {key: hashed[key] for key in TIMED_PARTS if key in hashed}
        return read | {"trainer": hashed.get("training", {}).get("trainer")}
    parts = TESTED_PARTS + (ATTACKED_PARTS if hashed.get("attacks") else ())
    return {key: hashed[key] for key in parts if key in hashed}


def cell_id(config: Mapping[str, Any]) -> str:
    """Short hash of what a cell reads; two cells of one id have one result.

    The user's own files and code count by their content; see `records.content`.
    """
    text = canonical_json(by_content(parts_read(config)), "config")
    found = hashlib.sha256(text.encode()).hexdigest()[:16]
    return _published_ids().get(found, found)


@cache
def _published_ids() -> dict[str, str]:
    found: dict[str, str] = json.loads(PUBLISHED_IDS.read_text(encoding="utf-8"))
    return found


def present_places(config: Any) -> Any:
    """A recorded configuration with the places where its classes are now."""
    if isinstance(config, Mapping):
        return {key: present_places(value) for key, value in config.items()}
    if isinstance(config, list):
        return [present_places(value) for value in config]
    return {before: now for now, before in MOVED.items()}.get(config, config)


@cache  # thousands of records have the same few hundred paths
def _ignored(path: str) -> bool:
    return IGNORED_KEYS.fullmatch(path) is not None


def _hashed(value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _hashed(child, at)
            for key, child in value.items()
            if not _ignored(at := f"{path}.{key}")
            and child not in DEFAULTS_FOR_MISSING_KEYS.get(at, ())
        }
    if isinstance(value, list):
        return [_hashed(child, path) for child in value]
    if isinstance(value, str):
        return MOVED.get(value, value)
    # 1 and 1.0 are one value to whatever reads it.
    return int(value) if isinstance(value, float) and value.is_integer() else value
