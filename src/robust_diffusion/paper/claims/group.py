"""Groups: the cells of one setting, and the measure compared between them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.timing import MEDIAN_SECONDS
from robust_diffusion.paper.axes import choice
from robust_diffusion.paper.layout import Line
from robust_diffusion.results.cells import CLEAN

ACCURACY = "accuracy"

MLP = "mlp"
"""The model that sees no edge, and the experiment that trains it on every graph."""

WORST_CASE = "worst-case"
"""In place of a table's: the experiments that attack every model in every way."""


@dataclass(frozen=True)
class Group:
    """One measure of the cells of one setting, seeds aside."""

    experiment: str  # of a table, such as table-3; or one of the two above
    axes: tuple[tuple[str, str], ...]  # of `paper.axes`, with their values, sorted
    measure: str = ACCURACY  # in points, or a record's path, compared as factors

    @property
    def line(self) -> Line:
        """The setting in terms of records and of the paper's tables."""
        line = Line()
        for axis, value in self.axes:
            found = choice(axis, value)
            line = line | Line({axis: value}, (found.label,), found.printed, found.record)
        return line

    @property
    def graph(self) -> str:
        """The test graph."""
        return dict(self.axes).get("attack", CLEAN)

    @property
    def dataset(self) -> str | None:
        """The dataset, if it names one."""
        return dict(self.axes).get("dataset")

    @property
    def timed(self) -> bool:
        """True for cells that timed a step instead of testing a model."""
        return self.measure == MEDIAN_SECONDS

    @property
    def cells(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Equal for two groups that are measured on the same trained models."""
        return self.experiment, tuple(pair for pair in self.axes if pair[0] != "attack")


def group(axes: Mapping[str, Any]) -> Group:
    """The group of an `experiment`, optionally a `measure`, and axes of the tables.

    The axis `attack` names the test graph, `clean` among them; an accuracy needs it.
    """
    given = {axis: str(value) for axis, value in axes.items()}
    experiment = given.pop("experiment", None)
    measure = given.pop("measure", ACCURACY)
    if experiment is None:
        raise ConfigError("experiment: missing; every group names one, such as table-3")
    if measure == ACCURACY and "attack" not in given:
        raise ConfigError("attack: missing; an accuracy is that on clean, or under an attack")
    for axis, value in given.items():
        choice(axis, value)
    return Group(experiment, tuple(sorted(given.items())), measure)
