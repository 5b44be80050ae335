"""Identity of a run: a hash of every setting that its result depends on."""

import hashlib
import json
import re
from collections.abc import Callable, Hashable, Mapping
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar

from robust_diffusion.records.content import targets_of, with_content
from robust_diffusion.system.hashes import canonical_json

if TYPE_CHECKING:
    from robust_diffusion.records.record import Record

_T = TypeVar("_T")

_PARTS: dict[tuple[str, str], Any] = {}

_SEED = "\0seed"
"""Stands for the seed in the settings of a configuration."""

PRESENTATION_KEYS = frozenset(
    [
        *("backend", "download", "experiment", "force", "logger", "mlp", "paths"),
        *("scale", "table"),
        "time_limit",
    ]
)
"""Top-level keys for output, places and speed, which do not change results."""

TESTED_PARTS = ("callbacks", "data", "model", "seed", "threads", "training")
"""Top-level keys that every run with a test accuracy reads; others are only referenced by these."""

ATTACKED_PARTS = ("attacks", "budget", "threat")
"""Further top-level keys that a run with an attack reads."""

TIMED_PARTS = ("data", "model", "seed", "threads", "timing")
"""Top-level keys that a timing run reads, in addition to the trainer, which names the device."""

IGNORED_KEYS = re.compile(
    r"(.*\.)?_partial_|dataset\.(edge_values|printed)|(training|threat\.fit)\.(progress_bar|cuda_graphs)"
    r"|(.*\.)?solver\.max_nfe"
    r"|threat\.fit\.key|attacks\..+\.data_dir|data(set)?\.source\.\w+\.(.*\.)?(download|root|urls)"
)
"""Paths of further keys that do not change results, unlike a custom flow's `key` or `root`."""


UNSET_KEYS = frozenset(["budget.features", "budget.max_words", "budget.scale_steps"])
"""Keys that were added after records were published, and only count if they are set."""


RETIRED: Mapping[str, Mapping[str, Any]] = {
    "robust_diffusion.integrators.solver.Solver": {"checkpoint": False, "engine": "auto"},
    "pytorch_lightning.Trainer": {"strategy": "auto"},
}
"""Options that `conf/` had when records were published, and their values in all of these.

They count as set to that value, so a published run and its repetition have the same id.
"""


THEN: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "threat.attacker_knows": ("labels", {"predictions": "predicted", "labels": True}),
    "threat.seeding": ("seeding", {"run": "cell"}),
}
"""Options that had other words when records were published: their key and values then."""

RENAMED = {"spectral_norm": "lipschitz"}
"""Options of flows when records were published -> their names now; ids keep the former."""


def renamed(node: Any, names: Mapping[str, str] = RENAMED) -> Any:
    """Return a configuration in which options of the package's flows have their other names."""
    if isinstance(node, list):
        return [renamed(child, names) for child in node]
    if not isinstance(node, dict):
        return node
    is_flow = str(node.get("_target_")).startswith("robust_diffusion.flows.")
    return {
        names.get(key, key) if is_flow else key: renamed(child, names)
        if isinstance(child, dict | list)
        else child
        for key, child in node.items()
    }


def settings_of_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a resolved configuration that can change a result."""
    return {key: _part(value, key) for key, value in config.items() if key not in PRESENTATION_KEYS}


def _part(value: Any, key: str) -> Any:
    """Return the settings of a top-level key, cached since most records share them."""
    name = key, repr(value)
    if name not in _PARTS:
        _PARTS[name] = _settings(value, key)
    return _PARTS[name]


def same_configuration(first: "Record", second: "Record") -> bool:
    """Return whether two records are known to differ in nothing but the seed, without a hash."""
    same = first.user_code == second.user_code and first.user_files == second.user_files
    return same and first.config is second.config


def once_per_configuration(function: Callable[..., _T]) -> Callable[..., _T]:
    """Cache a function of a record and further arguments that does not depend on the seed."""

    @wraps(function)
    def cached(record: "Record", *further: Hashable) -> _T:
        views = record.config.views
        content = (repr(record.user_code), repr(record.user_files))
        key = (function.__qualname__, content, *further)
        if key not in views:
            views[key] = function(record, *further)
        return views[key]  # type: ignore[no-any-return]

    return cached


def recorded_settings(record: "Record") -> dict[str, Any]:
    """Return the settings of a record, with user code and files as part of the model.

    Tables never average over records that differ in these. Files of attacks are left out, and so is
    code without a class of the model, its data or its training.
    """
    # A file is identified by its content instead of the typed path.
    settings = with_content(record.config.settings, record.user_files, {})
    code = record.user_code
    files = {
        key: digest
        for key, digest in record.user_files.items()
        if key.split(".")[0] not in ATTACKED_PARTS
    }
    targets = targets_of(trained_parts(settings)) if code else []
    of_model = any(target.startswith(f"{name}.") for target in targets for name in code)
    content: dict[str, Any] = {"user_code": code} if of_model else {}
    content |= {"user_files": files} if files else {}
    if content or "threads" in settings:
        content |= {"threads": settings.get("threads", 1)}
        settings = settings | {"model": settings.get("model", {}) | content}
    return settings


def trained_parts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a configuration that determine the trained model."""
    parts = {part: config.get(part) for part in ("model", "training", "data")}
    # A callback may change the training, for example by averaging weights.
    return parts | ({"callbacks": config["callbacks"]} if config.get("callbacks") else {})


@once_per_configuration
def settings_of(record: "Record", graph: str) -> str:
    """Return the settings behind a result on a graph, except the seed.

    The settings of a timing include the machine.
    """
    config = recorded_settings(record)
    if config.get("timing"):
        parts = ["model", "data", "trainer", "timing"]
        return _text({part: config.get(part) for part in parts})
    parts_behind = trained_parts(config)
    if graph != "clean":
        parts_behind |= {part: config.get(part) for part in ("threat", "budget")}
        parts_behind["attack"] = config.get("attacks", {}).get(graph)
        parts_behind |= {"user_code": record.user_code, "user_files": record.user_files}
    if "callbacks" in parts_behind:  # which may take the run's seed, as seed: ${seed}
        parts_behind["callbacks"] = _without_seed(parts_behind["callbacks"], record.seed)
    return _text(without_trainer(parts_behind))


def _text(settings: Mapping[str, Any]) -> str:
    """Return the same text for equal settings; faster than the canonical one behind ids."""
    return json.dumps(settings, sort_keys=True)


def _without_seed(node: Any, seed: int) -> Any:
    """Return a configuration without keys `seed` that have this value."""
    if not isinstance(node, dict):
        return node
    return {
        key: _without_seed(child, seed)
        for key, child in node.items()
        if (key, child) != ("seed", seed)
    }


def without_trainer(node: Any) -> Any:
    """Return a configuration without its trainers."""
    if not isinstance(node, dict):
        return node
    return {key: without_trainer(child) for key, child in node.items() if key != "trainer"}


def parts_read(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the run itself reads.

    Flow and solver are part of the model, and surrogates part of the threat. Their top-level keys
    are only references, and do not count if a model or threat does not use them.
    """
    return _read(settings_of_config(config))


def _read(settings: Mapping[str, Any]) -> dict[str, Any]:
    then = {now: then for then, now in RENAMED.items()}
    if settings.get("timing"):
        read = {key: renamed(settings[key], then) for key in TIMED_PARTS if key in settings}
        return read | {"trainer": settings.get("training", {}).get("trainer")}
    parts = TESTED_PARTS + (ATTACKED_PARTS if settings.get("attacks") else ())
    return {key: renamed(settings[key], then) for key in parts if key in settings}


def run_id(
    config: Mapping[str, Any],
    user_files: Mapping[str, Any] | None = None,
    user_code: Mapping[str, str] | None = None,
) -> str:
    """Return a short hash of everything a run reads; runs with the same id have the same result.

    Args:
        config: The resolved configuration.
        user_files: Hashes of the files it names, by the path of the key; see `content.user_files`.
        user_code: Hashes of user modules; see `content.user_code`.
    """
    read = with_content(parts_read(config), user_files or {}, user_code or {})
    return hashlib.sha256(canonical_json(read, "config").encode()).hexdigest()[:16]


@once_per_configuration
def _settings_text(record: "Record") -> str:
    read = _read(record.config.settings | {"seed": _SEED})
    return canonical_json(with_content(read, record.user_files, record.user_code), "config")


def id_of(record: "Record") -> str:
    """Return `run_id` of a record's settings; fast, since seeds share all but a number."""
    seed = canonical_json(record.seed, "seed")
    text = _settings_text(record).replace(canonical_json(_SEED, "seed"), seed)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache  # thousands of records have the same few hundred paths
def _ignored(path: str) -> bool:
    return IGNORED_KEYS.fullmatch(path) is not None


def _settings(value: Any, path: str) -> Any:
    if isinstance(value, dict):
        options = {**RETIRED.get(str(value.get("_target_")), {}), **value}
        settings = {}
        for key, child in options.items():
            at = f"{path}.{key}"
            if not (_ignored(at) or (child is None and at in UNSET_KEYS)):
                then, words = THEN.get(at, (key, {}))
                settings[then] = _settings(words.get(child, child) if words else child, at)
        return settings
    if isinstance(value, list):
        return [_settings(child, path) for child in value]
    # 1 and 1.0 are the same value to all readers.
    return int(value) if isinstance(value, float) and value.is_integer() else value
