"""Claims: sentences of the paper as lists of comparisons, read from `conf/claims.yaml`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from robust_diffusion.checks import check_choice, check_number
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.axes import WORST, choice
from robust_diffusion.paper.layout import Line
from robust_diffusion.results.cells import CLEAN

CLAIMS = CONFIG_DIR / "claims.yaml"
ACCURACY = "accuracy"

MLP = "mlp"
"""The model that sees no edge, and the experiment that trains it on every graph."""

WORST_CASE = "worst-case"
"""In place of a table's: the experiments that attack every model in every way."""

OPTIONS = {
    "test": ("greater", "equivalent", "trend", "differ"),
    "over": ("all", "average"),
    "of": ("level", "spread"),
}


@dataclass(frozen=True)
class Group:
    """One measure of the cells of one setting, seeds aside."""

    experiment: str  # of a table, such as table-3, or one of the two above
    axes: tuple[tuple[str, str], ...]  # of `paper.axes`, with their values, sorted
    measure: str = ACCURACY  # in points, or a record's path, compared as factors

    @property
    def line(self) -> Line:
        """The setting in terms of records and of the paper's tables."""
        return Line({axis: choice(axis, value) for axis, value in self.axes})

    @property
    def graph(self) -> str:
        """The test graph."""
        return dict(self.axes).get("attack", CLEAN)

    @property
    def dataset(self) -> str | None:
        """The dataset, if it names one."""
        return dict(self.axes).get("dataset")


Terms = tuple[tuple[float, Group], ...]  # weights, and what they weigh


class Comparison(NamedTuple):
    """A weighted sum of group means: an effect."""

    label: str
    terms: Terms

    @property
    def groups(self) -> list[Group]:
        """Groups that it compares."""
        return [group for _, group in self.terms]


@dataclass
class Claim:
    """A sentence of the paper as comparisons; `conf/claims.yaml` explains the fields."""

    quote: str = MISSING
    place: str = MISSING
    test: str = "greater"
    reading: str = ""
    over: str = "all"
    of: str = "level"
    margin: float = 0.0
    select: dict[str, Any] = field(default_factory=dict)
    each: dict[str, list[Any]] = field(default_factory=dict)
    left: dict[str, Any] = field(default_factory=dict)
    right: dict[str, Any] = field(default_factory=dict)
    terms: list[dict[str, Any]] = field(default_factory=list)
    levels: list[dict[str, Any]] = field(default_factory=list)

    @property
    def unit(self) -> str:
        """Unit of its effects: points, or factor, whose effects are logarithms."""
        return "factor" if "measure" in self.select else "points"

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """The comparisons it consists of; a selection that does not fit is a `ConfigError`."""
        found = []
        for chosen in _combinations(self.each):
            named = [f"vs {v}" if a == "right.model" else str(v) for a, v in chosen.items()]
            for more, sides in self._sides(chosen):
                terms = merged((w / len(side), group) for w, side in sides for group in side)
                found.append(Comparison(" ".join(filter(None, [*named, more])), terms))
        return found

    def against_mlp(self) -> "Claim | None":
        """The same with an MLP on the right, if it says that models are better under attack."""
        named = "model" in self.right or "right.model" in self.each
        graphs = self._plain_graphs()
        if self.test != "greater" or not named or not graphs or CLEAN in graphs:
            return None
        each = {axis: values for axis, values in self.each.items() if axis != "right.model"}
        return replace(self, each=each, right={"experiment": MLP, "model": MLP})

    def under_worst_case(self) -> "Claim | None":
        """The same by the worst case of each model, if it is about accuracies under attack."""
        if not self._plain_graphs() - {CLEAN, WORST}:
            return None

        def swapped(node: Any, key: str = "") -> Any:
            if isinstance(node, dict):
                return {axis: swapped(value, axis) for axis, value in node.items()}
            if isinstance(node, list):
                found = [swapped(value, key) for value in node]
                return [value for i, value in enumerate(found) if value not in found[:i]]
            if key == "experiment":
                return WORST_CASE
            return WORST if key.endswith("attack") and node != CLEAN else node

        parts = ("select", "each", "left", "right", "terms", "levels")
        return replace(self, **{part: swapped(getattr(self, part)) for part in parts})

    def _plain_graphs(self) -> set[str]:
        """Its test graphs, if it compares accuracies at the default settings and budget."""
        groups = [group for one in self.comparisons for group in one.groups]
        axes = {axis for group in groups for axis, _ in group.axes}
        default = axes <= {"dataset", "model", "attack"} and self.unit == "points"
        plain = default and self.of == "level" and all(g.experiment != MLP for g in groups)
        return {group.graph for group in groups} if plain else set()

    def _sides(self, chosen: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
        """Label and weighted sides of each comparison of one combination of `each`."""
        levels = [self._groups(level, chosen) for level in self.levels]
        if self.test == "differ":
            for a, b in combinations(levels, 2):
                names = ["/".join(v for axis, v in g.axes if axis != "attack") for (g,) in (a, b)]
                yield " vs ".join(names), [(1.0, a), (-1.0, b)]
        elif self.test == "trend":
            # The change from the first to the last level, of a straight line through all means.
            ranks = [i - (len(levels) - 1) / 2 for i in range(len(levels))]
            scale = (len(levels) - 1) / (sum(rank * rank for rank in ranks) or 1)
            yield "", [(scale * rank, level) for rank, level in zip(ranks, levels, strict=True)]
        else:
            left, right = {"weight": 1, **self.left}, {"weight": -1, **self.right}
            sides = [(".", term) for term in self.terms] or [("left.", left), ("right.", right)]
            yield "", [(float(a["weight"]), self._groups(a, chosen, side)) for side, a in sides]

    def _groups(self, axes: Mapping[str, Any], chosen: Mapping[str, Any], side: str = ".") -> Any:
        """Every combination of the values of one side's axes."""
        own = {a.removeprefix(side): v for a, v in chosen.items() if "." not in a or side in a}
        whole = {k: v for k, v in {**self.select, **axes, **own}.items() if k != "weight"}
        lists = {axis: of if isinstance(of, list) else [of] for axis, of in whole.items()}
        return [group(one) for one in _combinations(lists)]


@dataclass
class Claims:
    """The file of claims."""

    alpha: float = MISSING  # level of the tests, in 0..1
    min_seeds: int = MISSING  # fewest seeds of a comparison that is tested, at least 2
    claims: dict[str, Claim] = MISSING
    elsewhere: dict[str, str] = MISSING  # sentence that no record decides -> where it is discussed
    front: dict[str, str] = field(default_factory=dict)  # claim of the front pages -> its title


def load_claims(path: str | Path = CLAIMS) -> Claims:
    """Read and check a YAML file of claims such as `conf/claims.yaml`, which explains its keys."""
    try:
        node = OmegaConf.merge(OmegaConf.structured(Claims), OmegaConf.load(path))
        found: Any = OmegaConf.to_object(node)
    except (OSError, YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"{path}: cannot be read ({' '.join(str(error).split())})") from error
    check_number("alpha", found.alpha, above=0, below=1)
    check_number("min_seeds", found.min_seeds, at_least=2)
    for name in found.front:
        check_choice("front", name, found.claims)
    for name, claim in found.claims.items():
        try:
            for key, options in OPTIONS.items():
                check_choice(key, getattr(claim, key), options)
            compared = [one.terms for one in claim.comparisons]
        except ConfigError as error:
            raise ConfigError(f"claims.{name}: {error}") from error
        if not compared or () in compared:
            raise ConfigError(f"claims.{name}: test={claim.test} compares nothing; name two sides")
    return Claims(**vars(found))


def _combinations(values: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Every choice of one value per key, the first key slowest."""
    return [dict(zip(values, one, strict=True)) for one in product(*values.values())]


def group(axes: Mapping[str, Any]) -> Group:
    """The group of an `experiment`, optionally a `measure`, and axes of the tables.

    The axis `attack` names the test graph, `clean` among them; an accuracy needs it.
    """
    given = {"measure": ACCURACY} | {axis: str(value) for axis, value in axes.items()}
    for key in ("experiment", *(["attack"] if given["measure"] == ACCURACY else [])):
        if key not in given:
            raise ConfigError(f"{key}: missing; name the table, and of an accuracy its test graph")
    experiment, measure = given.pop("experiment"), given.pop("measure")
    for axis, value in given.items():
        choice(axis, value)
    return Group(experiment, tuple(sorted(given.items())), measure)


def merged(terms: Iterable[tuple[float, Group]]) -> Terms:
    """Terms with the weights of equal groups added up, those that cancel left out."""
    weights: dict[Group, float] = {}
    for weight, one in terms:
        weights[one] = weights.get(one, 0.0) + weight
    return tuple((weight, one) for one, weight in weights.items() if weight)
