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
    """Search that proposes trials by a tree-structured Parzen estimator, from earlier results.

    The proposals are deterministic: equal results of earlier trials lead to equal next trials.

    Reference:
        Optuna's sampler, arXiv:1907.10902.

    Args:
        overrides: Hydra overrides, each with a fixed value or a range to search:
            `interval(0.1, 1)` for real numbers, `int(interval(1, 9))` or `range(1, 9, 2)` for
            integers, `tag(log, ...)` around either, or `choice(a, b)`. If a key is repeated, the
            last override counts.
        direction: `maximize` or `minimize` the values of the trials.
        seed: Seed of the proposals, at least 0.
        n_startup_trials: Random trials before the search begins, at least 0.

    Raises:
        ConfigError: An override is not a supported range, or a value is out of range.
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
        # Optuna's log of each trial would repeat the log of the runs.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=n_startup_trials)
        self._study = optuna.create_study(sampler=sampler, direction=direction)
        self._proposed: list[optuna.Trial] = []

    def propose(self, count: int) -> list[list[str]]:
        """Return the overrides of the next `count` trials, which run before any is judged."""
        self._proposed = [self._study.ask(self._searched) for _ in range(count)]
        return [
            [*self._fixed, *(f"{key}={value}" for key, value in trial.params.items())]
            for trial in self._proposed
        ]

    def judge(self, values: Sequence[float | None]) -> None:
        """Report the values of the last proposed trials in order, `None` for a failed one."""
        for trial, value in zip(self._proposed, values, strict=True):
            state = TrialState.FAIL if value is None else TrialState.COMPLETE
            self._study.tell(trial, value, state)

    def best(self) -> tuple[float, dict[str, float | str]] | None:
        """Return the best value and its parameters; `None` if no trial has a value."""
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
