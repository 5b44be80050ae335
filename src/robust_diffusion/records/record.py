"""Record of one run: its settings, its results per test graph, and where they come from."""

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, NamedTuple, Self, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer, PrivateAttr, model_validator

from robust_diffusion.attacks.budget import Budget
from robust_diffusion.errors import ConfigError
from robust_diffusion.records.identity import id_of, settings_of_config
from robust_diffusion.records.schema import Schema, UnitShare

CLEAN = "clean"
"""Name of the graph without an attack among those of a record."""

ByKey: TypeAlias = dict[str, Any]
Shares: TypeAlias = dict[str, UnitShare]
Texts: TypeAlias = dict[str, list[str]]

EMPTY: Any = Field(default_factory=dict)
NOTHING: Any = Field(default_factory=list)

_BUDGETS: dict[str, Budget] = {}


def _budget(value: Any) -> Any:
    """Return the budget with these limits, cached since thousands of records share a few."""
    if not isinstance(value, dict):
        return value
    limits = {key: limit for key, limit in value.items() if key != "scale_steps"}
    key = repr(limits)
    if key not in _BUDGETS:
        try:
            _BUDGETS[key] = Budget(**limits)
        except (ConfigError, TypeError) as error:  # an unknown limit would change the budget
            raise ValueError(str(error)) from error
    return _BUDGETS[key]


_Budget = Annotated[Budget, BeforeValidator(_budget), PlainSerializer(lambda budget: budget.bounds)]


class Request(NamedTuple):
    """What asked for a run: a sweep, or a single command."""

    experiment: str
    scale: str = "full"
    overrides: Mapping[str, str] = {}
    time: str = ""
    sweep: str = ""
    job: int = 0  # place in the sweep
    error: str | None = None  # of this attempt, though an earlier one may have finished

    @property
    def order(self) -> tuple[str, str, int]:
        """Sorts requests by time, and by their place in a sweep."""
        return self.time, self.sweep, self.job


class Config(Schema, extra="allow"):
    """Resolved configuration of a run without its seed; all seeds of a setting share one object."""

    attacks: ByKey = EMPTY
    budget: ByKey = EMPTY
    callbacks: ByKey = EMPTY
    data: ByKey = EMPTY
    model: ByKey = EMPTY
    threat: ByKey = EMPTY
    timing: ByKey | None = None
    training: ByKey = EMPTY
    _views: dict[Hashable, Any] = PrivateAttr(default_factory=dict)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The part that can change a result."""
        return settings_of_config(self.whole)

    @cached_property
    def whole(self) -> dict[str, Any]:
        """All keys, as they were composed."""
        return {key: getattr(self, key) for key in self.model_fields_set}

    @property
    def views(self) -> dict[Hashable, Any]:
        """Cache, by any key, of values computed from the configuration."""
        return self._views


class Record(Schema, extra="allow"):
    """Record of one run: its settings, its results per test graph, and where they come from.

    Accuracies are shares in 0..1. Keys of a later version are kept in `model_extra`.

    Examples:
        >>> from robust_diffusion.records import Record
        >>> record = Record(run="a", dataset="cora", model="gcn", seed=0, accuracy={"clean": 0.8})
        >>> (record | {"seed": 1}).accuracy["clean"]
        0.8
    """

    # Identity and settings.
    run: str  # hash of everything that the results depend on
    experiment: str = "none"  # that asked for it first
    scale: str = "full"
    dataset: str
    difficulty: str | None = None
    model: str
    flow: str | None = None
    solver: str | None = None
    fidelity: str = "paper"
    threat: str | None = None  # `None` of a timing
    surrogates: list[str] = NOTHING
    seed: Any  # an int, unless the run failed because of it
    config: Config = Field(default_factory=Config)
    overrides: dict[str, Any] = EMPTY  # typed or swept, of the first request
    user_code: dict[str, str] = EMPTY
    user_files: ByKey = EMPTY
    budget: _Budget | None = None  # of each attack, with resolved feature limits

    # Results; see `RunResult` of `experiment.evaluate_run`.
    accuracy: Shares = EMPTY  # per test graph; the lowest of several surrogates
    mean_accuracy: Shares = EMPTY
    attacked: dict[str, Shares] = EMPTY  # per attacked model and graph
    parts: dict[str, Shares] = EMPTY  # per attack, and part of an ensemble
    val_accuracy: UnitShare | None = None
    spent: dict[str, dict[str, ByKey]] = EMPTY  # budget per attack and attacked model
    unbounded: dict[str, dict[str, str]] = EMPTY  # per attack, limits that it does not observe
    attack_versions: dict[str, int] = EMPTY
    flags: Texts = EMPTY  # codes per attack, and of the `victim`
    warnings: Texts = EMPTY  # the same flags as text
    surrogate_flags: Texts = EMPTY
    same_weights: list[str] = NOTHING  # surrogates with the victim's weights
    epochs: int | None = None
    best_epoch: int | None = None
    nfe: int | None = None
    step_ratio: float | None = None
    seconds: dict[str, float] = EMPTY  # per phase; `diffusion` of a timing
    forwards: dict[str, int] = EMPTY
    timing: ByKey = EMPTY  # of a run that times a step
    split: str = ""
    split_drawn: bool | None = None
    curvature: ByKey = EMPTY  # like the next one, of runs that measured it
    solves: ByKey = EMPTY

    # Provenance.
    reused: list[str] = NOTHING
    files: dict[str, str] = EMPTY  # cache entries of the victim and of each perturbed graph
    code: str | None = None
    revision: str | None = None
    versions: dict[str, str] = EMPTY
    backend: str | None = None
    processor: str | None = None
    directory: str = ""
    job: int = 0
    time: str = ""
    published_as: str | None = None  # former id

    # Failure.
    error: str | None = None
    error_kind: str | None = None

    _requests: tuple[Request, ...] = PrivateAttr(())

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.error is not None:
            return self
        if not isinstance(self.seed, int):
            raise ValueError(f"seed: expected an integer, got {self.seed!r}")  # noqa: TRY004
        if self.timing:
            if "diffusion" not in self.seconds:
                raise ValueError("seconds.diffusion: missing")
        elif CLEAN not in self.accuracy:
            raise ValueError("accuracy.clean: missing")
        elif len(self.accuracy) > 1 and self.budget is None:
            raise ValueError("budget: missing")
        return self

    @property
    def is_tested(self) -> bool:
        """Whether the run finished and tested a model, instead of timing one."""
        return self.error is None and not self.timing

    @property
    def is_timing(self) -> bool:
        """Whether the run times a step; it then has a time instead of an accuracy."""
        return bool(self.timing or self.config.timing)

    def reads(self, part: str) -> bool:
        """Return whether the model reads a part; without a flow, it reads no flow and no solver."""
        return part not in ("flow", "solver") or getattr(self, part) is not None

    @property
    def model_name(self) -> str:
        """Name of the model, or of its flow, with its adversarial training if any.

        Examples are `beltrami, adversary` for injected nodes, and `beltrami, flip adversary`.
        """
        # All other models with a flow have a fixed one.
        flow = self.flow if self.model == "graph_pde" else None
        target = (self.config.training.get("adversary") or {}).get("_target_", "")
        kind = target.rpartition(".")[2].removesuffix("Adversary")
        against = f"{kind} adversary".lower().removeprefix("injection ").strip()
        return ", ".join([flow or self.model, *([against] if target else [])])

    def __or__(self, changes: Mapping[str, Any]) -> Self:
        """Return the record with other values, such as the results of its run.

        Raises:
            ValueError: A value does not fit, such as an accuracy outside 0..1.
        """
        known = {key: getattr(self, key) for key in self.model_fields_set}
        return type(self).model_validate({**known, **changes})

    @property
    def id_of_settings(self) -> str:
        """The id that the settings give; unlike `run` if either of them was edited."""
        return id_of(self)

    @property
    def requests(self) -> tuple[Request, ...]:
        """Everything that asked for the run, each sweep once, in order of time."""
        first = Request(self.experiment, self.scale, self.overrides, self.time, "", self.job)
        return self._requests or (first,)

    @property
    def experiments(self) -> list[str]:
        """Every experiment that asked for the run, in that order."""
        return list(dict.fromkeys(r.experiment for r in self.requests if r.experiment != "none"))

    def set_requests(self, requests: Iterable[Request]) -> None:
        """Set the requests, which are in other files than the record."""
        self._requests = tuple(sorted(requests, key=lambda request: request.order))
