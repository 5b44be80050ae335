"""Identity of a run: a hash of every setting that its result depends on."""

import hashlib
import re
from collections.abc import Callable, Hashable, Mapping
from functools import cache, cached_property, wraps
from typing import Any, TypeVar

from robust_diffusion.records.content import targets_of, with_content
from robust_diffusion.system.hashes import canonical_json

_T = TypeVar("_T")

ModelKey = tuple[str, int, float]
"""Settings, seed and clean accuracy of a trained model."""

PRESENTATION_KEYS = frozenset(
    [
        *("backend", "download", "experiment", "force", "logger", "paths", "scale", "table"),
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
    "robust_diffusion.integrators.solver.Solver": {
        "checkpoint": False,
        "engine": "auto",
        "step_size": None,
    },
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


class RecordedConfig(dict[str, Any]):
    """Configuration read from a record. Do not modify it, since all seeds share its parts."""

    shared: "RecordedConfig | None" = None

    def with_seed(self, seed: Any) -> "RecordedConfig":
        """Return the configuration of one seed."""
        config = RecordedConfig(self, seed=seed)
        config.shared = self
        return config

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Cached result of `settings_of_config`, computed once for all seeds."""
        if self.shared is None:
            return settings_of_config({**self})
        return self.shared.settings | {"seed": self["seed"]}

    @cached_property
    def views(self) -> dict[Hashable, Any]:
        """Cache, by any key, of values computed from the configuration without the seed."""
        return {} if self.shared is None else self.shared.views


def settings_of_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a resolved configuration that can change a result."""
    if isinstance(config, RecordedConfig):
        return config.settings
    return {
        key: _settings(value, key) for key, value in config.items() if key not in PRESENTATION_KEYS
    }


def once_per_configuration(function: Callable[..., _T]) -> Callable[..., _T]:
    """Cache a function of a record and further arguments that does not depend on the seed."""

    @wraps(function)
    def cached(record: Mapping[str, Any], *further: Hashable) -> _T:
        config = record.get("config")
        if not isinstance(config, RecordedConfig):
            return function(record, *further)
        content = (repr(record.get("user_code")), repr(record.get("user_files")))
        key = (function.__qualname__, content, *further)
        if key not in config.views:
            config.views[key] = function(record, *further)
        return config.views[key]  # type: ignore[no-any-return]

    return cached


def recorded_settings(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a record, with user code and files as part of the model.

    Tables never average over records that differ in these. Files of attacks are left out, and so is
    code without a class of the model, its data or its training.
    """
    settings = settings_of_config(record.get("config", {}))
    # A file is identified by its content instead of the typed path.
    settings = with_content(settings, record.get("user_files") or {}, {})
    files, code = record.get("user_files") or {}, record.get("user_code") or {}
    files = {
        key: digest for key, digest in files.items() if key.split(".")[0] not in ATTACKED_PARTS
    }
    targets = targets_of(trained_parts(settings)) if code else []
    of_model = any(target.startswith(f"{name}.") for target in targets for name in code)
    content = {"user_code": code} if of_model else {}
    content |= {"user_files": files} if files else {}
    if content or "threads" in settings:
        content |= {"threads": settings.get("threads", 1)}
        settings = settings | {"model": settings.get("model", {}) | content}
    return settings


def trained_model(record: Mapping[str, Any]) -> ModelKey:
    """Return the settings, seed and clean accuracy of the model that a run tested.

    The accuracy is included because another version of the code may train a different model with
    the same settings, which is unlikely to have the same accuracy.
    """
    return settings_of(record, "clean"), record["seed"], record["accuracy"]["clean"]


def trained_parts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a configuration that determine the trained model."""
    parts = {part: config.get(part) for part in ("model", "training", "data")}
    # A callback may change the training, for example by averaging weights.
    return parts | ({"callbacks": config["callbacks"]} if config.get("callbacks") else {})


@once_per_configuration
def settings_of(record: Mapping[str, Any], graph: str) -> str:
    """Return the settings behind a result on a graph, except the seed.

    The settings of a timing include the machine.
    """
    config = recorded_settings(record)
    if config.get("timing"):
        parts = ["model", "data", "trainer", "timing"]
        return canonical_json({part: config.get(part) for part in parts}, "config")
    parts_behind = trained_parts(config)
    if graph != "clean":
        parts_behind |= {part: config.get(part) for part in ("threat", "budget")}
        parts_behind["attack"] = config.get("attacks", {}).get(graph)
        parts_behind |= {key: record.get(key) for key in ("user_code", "user_files")}
    return canonical_json(without_trainer(parts_behind), "config")


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
    settings = settings_of_config(config)
    if settings.get("timing"):
        read = {key: settings[key] for key in TIMED_PARTS if key in settings}
        return read | {"trainer": settings.get("training", {}).get("trainer")}
    parts = TESTED_PARTS + (ATTACKED_PARTS if settings.get("attacks") else ())
    return {key: settings[key] for key in parts if key in settings}


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


@cache  # thousands of records have the same few hundred paths
def _ignored(path: str) -> bool:
    return IGNORED_KEYS.fullmatch(path) is not None


def _settings(value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        retired = RETIRED.get(str(value.get("_target_")), {})
        if "num_steps" not in value:  # adaptive solvers never had a step size
            retired = {key: option for key, option in retired.items() if key != "step_size"}
        options = {**retired, **value}
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
