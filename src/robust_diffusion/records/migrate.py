"""Conversion of records from schema 1, written by versions up to 0.2.0, to schema 2.

Schema 1 lacks keys that did not exist yet, names classes by older paths, and repeats the
configuration in each line. This module can be removed once no one has such files.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from robust_diffusion.records.identity import run_id

MOVED = {
    f"robust_diffusion.{before}": f"robust_diffusion.{now}"
    for before, now in {
        "evaluation.timing.StepTiming": "experiment.timing.StepTiming",
        "solver.Solver": "integrators.solver.Solver",
    }.items()
}
"""Former paths of classes in a `_target_` -> current paths."""

EMPTY = ("adversary", "callbacks", "certificate", "timing")
"""Groups for which schema 1 omits the option `none`."""

OF_A_CLASS: Mapping[str, Mapping[str, Any]] = {
    "models.APPNP": {"variant": "original"},
    "models.GCNSVD": {"negative_degree": "zero"},
    "models.GraphSAGE": {"variant": "original"},
    "attacks.FGSM": {"loss": "cross_entropy"},
    "attacks.PGD": {"loss": "cross_entropy"},
    "attacks.SPEIT": {"loss": "cross_entropy"},
    "evaluation.BlackBox": {"seeding": "cell"},
    "data.sources.load_grb": {"split_seed": None},
}
"""Fixed values of classes that later became keys."""


AUTO = {
    **dict.fromkeys(["7f9026763c6c22c2", "bcb7890ca749b660"], 1),  # equal shares of all edges
    "c86901b40ffc6984": 2,  # a guarded model's true gradient, too
    "6dd2a5892cddaa8b": 3,  # one edge per target
    "c8825d6df85e8055": 4,  # four edges per target; continues while that pays
    **dict.fromkeys(["e9633e1114fab1d6", "621d660d55d83c11"], 5),  # links, edges that move
    **dict.fromkeys(["59fb6f7f930e0fcb", "681f628297524ca9", "bcd13ca00656f46d"], 6),  # more rounds
    **dict.fromkeys(["1a3dffbdbe3fc35d", "ee3c4ab9a72a7be6", "d8012ebb2d6b8a6b"], 6),
    **dict.fromkeys(["dc74da14e30cf595", "800cf46170b2b700"], 6),
}
"""Version of `auto` and `auto_modification` by the `code` of a record."""

OF_ANY_MODEL = frozenset(
    [
        *("stochastic", "solvers_disagree", "budget_overspent", "degree_leak"),
        *("logits_not_finite", "diverged", "budget_unspent", "budget_allows_nothing"),
    ]
)
"""Flags of a transferred graph that do not depend on the surrogate."""

ON_SURROGATES = ("weaker than chance", "changes no prediction")
"""Prefixes of warnings measured on a surrogate, in records older than flags."""


def migrated(records: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Convert records of schema 1 to schema 2, in order.

    Missing keys get their implicit values, and ids are computed from the settings. The former id of
    a record is stored as `published_as`.
    """
    ids: dict[str, str] = {}
    for record in records:
        new = dict(record)
        name = new.pop("cell")
        if "config" in record:
            config = with_defaults(_moved(record["config"]))
            content = {key: record.get(key) for key in ("user_files", "user_code")}
            ids[name] = run_id(config | {"seed": record.get("seed")}, **content)
            new |= {"config": config, "published_as": name}
            if record.get("code") in AUTO:
                names = {"auto", "auto_modification"} & (config.get("attacks") or {}).keys()
                new["attack_versions"] = dict.fromkeys(sorted(names), AUTO[record["code"]])
            if record.get("threat") == "black_box" and "accuracy" in record:
                new |= attributed(new)
        yield new | {"run": ids.get(name, name)}


def attributed(record: Mapping[str, Any]) -> dict[str, Any]:
    """Assign the flags of a black-box record to the model they were measured on.

    With `seeding=cell`, the only option at the time, surrogates and the model are trained from the
    same seed. If their configurations agree, they have the same weights. The flags of all other
    surrogates used to be listed with those of the model.
    """
    if "surrogate_flags" in record:
        return {}
    threat, attacked = record["config"]["threat"], record.get("attacked", {})
    same = [
        name
        for name, model in (threat.get("surrogates") or {}).items()
        # Their trainings may differ in length; then equal accuracies are unlikely.
        if threat.get("seeding", "cell") == "cell"
        and model == record["config"].get("model")
        and attacked.get(name, {}).get("clean") == record["accuracy"]["clean"]
    ]
    flags, warnings = record.get("flags", {}), record.get("warnings", {})
    keys: dict[str, Any] = {"same_weights": same, "surrogate_flags": {}}
    if same:
        return keys
    for key, by_graph in (("flags", flags), ("warnings", warnings)):
        keys[key] = {}
        for graph, lines in by_graph.items():
            codes = flags.get(graph, lines)
            on_model = [
                line
                for code, line in zip(codes, lines, strict=False)
                if graph == "victim"
                or code in OF_ANY_MODEL
                or not (graph in flags or code.startswith(ON_SURROGATES))
            ]
            if on_model:
                keys[key][graph] = on_model
            if key == "flags" and (moved := [code for code in codes if code not in on_model]):
                keys["surrogate_flags"][graph] = moved
    return keys


def schema_1(line: bytes) -> dict[str, Any]:
    """Parse a line of schema 1."""
    record: dict[str, Any] = json.loads(line.decode("utf-8-sig"))
    return record


def with_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with the keys that schema 1 omits."""
    full: dict[str, Any] = {**dict.fromkeys(EMPTY), "threads": 1, **_filled(config)}
    full |= {key: full[key] or {} for key in EMPTY}
    if full.get("training"):
        full["training"] = {
            **full["training"],
            "adversary": full["training"].get("adversary") or {},
        }
    if "data" in full:
        batching = {"_target_": "robust_diffusion.data.FullBatch"}
        full["data"] = {"edge_values": "ones", "batching": batching, **full["data"]}
    return full


def _filled(node: Any) -> Any:
    if isinstance(node, list):
        return [_filled(child) for child in node]
    if not isinstance(node, Mapping):
        return node
    filled = {key: _filled(child) for key, child in node.items()}
    target = str(node.get("_target_", "")).removeprefix("robust_diffusion.")
    defaults = dict(OF_A_CLASS.get(target, {}))
    if target == "integrators.solver.Solver" and "num_steps" in node:
        defaults["step_size"] = None
    if target == "pytorch_lightning.Trainer":
        defaults["strategy"] = "auto"
    return defaults | filled


def _moved(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {key: _moved(child) for key, child in node.items()}
    if isinstance(node, list):
        return [_moved(child) for child in node]
    return MOVED.get(node, node) if isinstance(node, str) else node
