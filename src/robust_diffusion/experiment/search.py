"""Trials of a search for hyper-parameters."""

from collections.abc import Sequence
from typing import Literal

import optuna
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState

from robust_diffusion.checks import Natural, validated
from robust_diffusion.errors import ConfigError


@validated("hydra.sweeper.sampler")
class Search:
    """Trials that a tree-structured Parzen estimator proposes, told how good earlier ones were.

    The same values of earlier trials lead to the same next ones.

    Reference:
        Optuna's sampler, arXiv:1907.10902.

    Args:
        overrides: Hydra's, each a fixed value or one to search: `interval(0.1, 1)` of real numbers,
            `int(interval(1, 9))` or `range(1, 9, 2)` of whole ones, `tag(log, ...)` of these, or
            `choice(a, b)`. Of two with one key the later counts.
        direction: `maximize` or `minimize` the trials' values.
        seed: Of the proposals, at least 0.
        n_startup_trials: Random trials before the search begins, at least 0.

    Raises:
        ConfigError: A sweep that no search can read, or a value out of range.
    """

    def __init__(
        self,
        overrides: Sequence[str],
        *,
        direction: Literal["maximize", "minimize"] = "maximize",
        seed: Natural = 0,
        n_startup_trials: Natural = 10,
    ) -> None:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        last = {override.get_key_element(): override for override in parsed}
        self._fixed = [str(o.input_line) for o in last.values() if not o.is_sweep_override()]
        self._searched = {k: _distribution(o) for k, o in last.items() if o.is_sweep_override()}
        if not self._searched:
            remedy = "give a range, such as training.learning_rate=interval(0.001,0.1)"
            raise ConfigError(f"hydra/sweeper=tune: nothing to search; {remedy}")
        # Its own log of each trial would repeat what the runs log.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=n_startup_trials)
        self._study = optuna.create_study(sampler=sampler, direction=direction)
        self._proposed: list[optuna.Trial] = []

    def propose(self, count: int) -> list[list[str]]:
        """The overrides of the next `count` trials, which run before any of them is judged."""
        self._proposed = [self._study.ask(self._searched) for _ in range(count)]
        return [
            [*self._fixed, *(f"{key}={value}" for key, value in trial.params.items())]
            for trial in self._proposed
        ]

    def judge(self, values: Sequence[float | None]) -> None:
        """Tell the values of the trials proposed last, in order; `None` of one that failed."""
        for trial, value in zip(self._proposed, values, strict=True):
            state = TrialState.FAIL if value is None else TrialState.COMPLETE
            self._study.tell(trial, value, state)

    def best(self) -> tuple[float, dict[str, float | str]] | None:
        """The best value, and what was searched for it; `None` if no trial has a value."""
        if not self._study.get_trials(states=[TrialState.COMPLETE]):
            return None
        return self._study.best_value, self._study.best_params


def _distribution(override: Override) -> BaseDistribution:
    sweep = override.value()
    try:
        match sweep:
            case IntervalSweep(start=int(low), end=int(high)):
                return IntDistribution(low, high, log="log" in sweep.tags)
            case IntervalSweep(start=float() | int() as low, end=float() | int() as high):
                return FloatDistribution(low, high, log="log" in sweep.tags)
            case RangeSweep():
                return _range(sweep)
            case ChoiceSweep():
                return CategoricalDistribution(list(override.sweep_string_iterator()))
    except ValueError as error:
        raise ConfigError(f"{override.input_line}: {error}") from error
    raise ConfigError(f"{override.input_line}: use choice, range or interval")


def _range(sweep: RangeSweep) -> BaseDistribution:
    values = sorted(sweep.range())
    if not values:
        raise ValueError("holds no number")
    step, log = abs(sweep.step), "log" in sweep.tags
    if all(isinstance(value, int) for value in values):
        return IntDistribution(int(values[0]), int(values[-1]), step=int(step), log=log)
    low, high = (round(value, 12) for value in (values[0], values[-1]))  # sums of rounded steps
    return FloatDistribution(low, high, step=step, log=log)
