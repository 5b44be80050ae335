"""Schema of records, and its base for other files that may come from elsewhere."""

import reprlib
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Scalar: TypeAlias = str | int | float | bool | None
UnitShare = Annotated[float, Field(ge=0, le=1)]
_Parts: TypeAlias = dict[str, Any]

MISSING: Any = None
"""Default of a key that may be missing; it is never read, and not copied for each record."""


class Schema(BaseModel):
    """Base of all schemas: no conversion of values, unknown keys are allowed, NaN is not."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)


class _Training(Schema):
    trainer: _Parts | None = None


class _Config(Schema):
    attacks: _Parts = MISSING
    data: _Parts = MISSING
    budget: _Parts | None = None
    model: _Parts | None = None
    threat: _Parts | None = None
    timing: _Parts | None = None
    training: _Training | None = None


class AnyRecord(Schema):
    """Keys that a record may have, finished or not."""

    run: str = ""
    directory: str = ""
    error: str = ""
    error_kind: str = ""
    model: str = ""
    code: str | None = None
    configuration: str | None = None
    experiment: str | None = None
    fidelity: str | None = None
    flow: str | None = None
    scale: str | None = None
    solver: str | None = None
    split: str | None = None
    threat: str | None = None
    dataset: Scalar = None  # like the next two, it may be anything in a failed run
    difficulty: Scalar = None
    seed: Scalar = None
    job: int = 0
    surrogates: list[str] = MISSING
    overrides: dict[str, Scalar] = MISSING
    mean_accuracy: dict[str, Scalar] = MISSING
    attacked: dict[str, _Parts] = MISSING
    parts: dict[str, _Parts] = MISSING
    flags: dict[str, list[str]] = MISSING
    warnings: dict[str, list[str]] = MISSING
    surrogate_flags: dict[str, list[str]] = MISSING
    attack_versions: dict[str, int] = MISSING
    accuracy: _Parts = MISSING
    budget: _Parts = MISSING
    seconds: _Parts = MISSING
    timing: _Parts = MISSING
    versions: _Parts = MISSING
    config: _Config = MISSING


class Failed(Schema):
    """Record of a run that failed."""

    dataset: Scalar
    model: str
    seed: Scalar
    val_accuracy: UnitShare | None = None


class _Finished(Schema):
    experiment: str
    dataset: str
    fidelity: str
    model: str
    seed: int


class Timed(_Finished):
    """Record of a run that timed a step."""

    timing: _Parts
    seconds: dict[str, float]


class _Declared(Schema):
    model_config = ConfigDict(extra="forbid")  # a limit that is ignored would change the budget

    max_injected_nodes: int
    max_edges_per_injected_node: int
    max_injected_edges: int | None = None
    node_ratio: float = 0
    edge_ratio: float = 0
    epsilon: float = 0
    feature_limits: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    features: str | None = None
    max_words: int | None = None
    scale_steps: bool | None = None


BUDGET_KEYS = frozenset(_Declared.model_fields)
"""Keys of a declared budget in this version."""


class _Budget(Schema):
    declared: _Declared
    spent: dict[str, dict[str, _Parts]] = MISSING


class _Accuracy(Schema):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, UnitShare]

    clean: UnitShare


class Tested(_Finished):
    """Record of a run that trained and tested a model; accuracies in 0..1, not in %."""

    accuracy: _Accuracy
    val_accuracy: UnitShare
    budget: _Budget
    mean_accuracy: dict[str, UnitShare] = MISSING
    attacked: dict[str, dict[str, UnitShare]] = MISSING
    parts: dict[str, dict[str, UnitShare]] = MISSING


def misfit(schema: type[Schema], value: Any) -> str | None:
    """Return the first key of a value that does not fit a schema, and why; `None` if all fit."""
    try:
        schema.model_validate(value)
    except ValidationError as error:
        return first_problem(error)
    return None


def first_problem(error: ValidationError) -> str:
    """Describe the first key that does not fit, and why."""
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")  # a validator already names the value
    if first["type"] == "extra_forbidden":
        message = "unknown, perhaps written by a later version; upgrade robust-diffusion"
    named = first["type"] in ("missing", "value_error", "extra_forbidden")
    got = "" if named else f", not {reprlib.repr(first['input'])}"
    return f"{'.'.join(map(str, first['loc'])) or 'text'}: {message}{got}"
