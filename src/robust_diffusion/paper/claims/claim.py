"""Claims: sentences of the paper as tests over records, read from `conf/claims.yaml`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from robust_diffusion.checks import check_choice, check_number
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.claims.group import ACCURACY, Group, group

CLAIMS = CONFIG_DIR / "claims.yaml"

Test = Literal["greater", "equivalent", "contrast", "trend", "differ"]
Quantifier = Literal["all", "average"]
Of = Literal["level", "spread"]
Direction = Literal["up", "down"]
Unit = Literal["points", "factor"]

Terms = tuple[tuple[float, Group], ...]
"""Weighted groups: a contrast."""

Axes = Mapping[str, Any]

FRONT = 8
"""Most claims of the front pages."""


@dataclass(frozen=True)
class Member:
    """One comparison of a claim: a contrast, or levels with the number and group of each.

    Its dataset is `None` unless the claim is about several.
    """

    label: str
    dataset: str | None
    terms: Terms = ()
    levels: tuple[tuple[float, Group], ...] = ()

    @property
    def groups(self) -> list[Group]:
        """All groups it needs."""
        return list(dict.fromkeys(g for _, g in (*self.terms, *self.levels)))

    @property
    def contrast(self) -> Terms:
        """The contrast that shows the effect: of levels, the last less the first."""
        if not self.levels:
            return self.terms
        (_, first), *_, (_, last) = self.levels
        return ((1.0, last), (-1.0, first))


def merged(terms: Iterable[tuple[float, Group]]) -> Terms:
    """Terms with the weights of equal groups added up."""
    weights: dict[Group, float] = {}
    for weight, one in terms:
        weights[one] = weights.get(one, 0.0) + weight
    return tuple((weight, one) for one, weight in weights.items())


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper as a test over records."""

    name: str
    quote: str  # the paper's words
    place: str  # label of the table, figure or section
    test: Test
    reading: str = ""  # interpretation, where there is a choice
    over: Quantifier = "all"  # all members must hold, or their average
    of: Of = "level"  # compared statistic: the level, or the spread over seeds
    margin: float = 0.0  # in points of accuracy; of other measures, a factor
    direction: Direction = "up"  # of a trend
    select: Axes = field(default_factory=dict)  # axes of all sides
    each: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # values per axis
    left: Axes = field(default_factory=dict)  # a list of values is their mean
    right: Axes = field(default_factory=dict)
    terms: Sequence[Axes] = ()  # of a contrast: `weight` and axes each
    levels: Sequence[Axes] = ()  # axes each, and for a trend the number it is `at`

    @cached_property
    def unit(self) -> Unit:
        """Unit of its effects; those of factors are logarithms."""
        groups = [group for member in self.members() for group in member.groups]
        return "points" if all(group.measure == ACCURACY for group in groups) else "factor"

    def members(self) -> list[Member]:
        """The comparisons it consists of; a selection that does not fit is a `ConfigError`."""
        return [
            self._member(dict(zip(self.each, values, strict=True)))
            for values in product(*self.each.values())
        ]

    def _member(self, chosen: Mapping[str, Any]) -> Member:
        label = " ".join(
            f"vs {value}" if axis == "right.model" else str(value) for axis, value in chosen.items()
        )
        dataset = chosen.get("dataset")
        if self.test in ("trend", "differ"):
            levels = tuple(
                (float(level.get("at", i)), self._groups(level, chosen)[0])
                for i, level in enumerate(self.levels)
            )
            return Member(label, dataset, levels=levels)
        if self.test == "contrast":
            sides = [(float(term["weight"]), self._groups(term, chosen)) for term in self.terms]
        else:
            sides = [
                (1.0, self._groups(self.left, chosen, "left.")),
                (-1.0, self._groups(self.right, chosen, "right.")),
            ]
        terms = merged((weight / len(found), one) for weight, found in sides for one in found)
        return Member(label, dataset, tuple(term for term in terms if term[0]))

    def _groups(self, axes: Axes, chosen: Mapping[str, Any], side: str = "") -> list[Group]:
        """Every combination of the values of one side's axes."""
        own = {axis: value for axis, value in chosen.items() if "." not in axis}
        if side:
            own |= {a.removeprefix(side): v for a, v in chosen.items() if a.startswith(side)}
        whole = {**self.select, **axes, **own}
        values = {
            axis: value if isinstance(value, list) else [value]
            for axis, value in whole.items()
            if axis not in ("weight", "at")
        }
        return [group(dict(zip(values, one, strict=True))) for one in product(*values.values())]


@dataclass(frozen=True)
class Claims:
    """The file of claims."""

    alpha: float  # level of the tests, in 0..1
    min_seeds: int  # fewest values of a group that is tested, at least 2
    claims: Mapping[str, Claim]
    elsewhere: Mapping[str, str]  # sentence that records cannot decide -> place of its discussion
    front: Mapping[str, str] = field(default_factory=dict)  # claim of the front pages -> its title


def load_claims(path: str | Path = CLAIMS) -> Claims:
    """Read and check a YAML file of claims such as `conf/claims.yaml`, which explains its keys."""
    try:
        node: Any = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"{path}: cannot be read ({' '.join(str(error).split())})") from error
    needed = {"alpha", "min_seeds", "claims", "elsewhere"}
    if not isinstance(node, dict) or set(node) - {"front"} != needed:
        raise ConfigError(
            f"{path}: needs the keys alpha, min_seeds, claims and elsewhere; front may be there, "
            "no other"
        )
    front = node.get("front", {})
    for name in front:
        check_choice("front", name, node["claims"])
    if len(front) > FRONT:
        raise ConfigError(f"front: {len(front)} claims; name at most {FRONT}")
    return Claims(
        alpha=check_number("alpha", node["alpha"], above=0, below=1),
        min_seeds=int(check_number("min_seeds", node["min_seeds"], at_least=2)),
        claims={name: parse_claim(name, keys) for name, keys in node["claims"].items()},
        elsewhere=node["elsewhere"],
        front=front,
    )


def parse_claim(name: str, keys: Mapping[str, Any]) -> Claim:
    """Read and check one claim, given the fields of `Claim`."""
    known = {f.name for f in fields(Claim)} - {"name"}
    for key in keys:
        check_choice(f"claims.{name}", key, known)
    for key in ("quote", "place", "test"):
        if not isinstance(keys.get(key), str):
            raise ConfigError(f"claims.{name}.{key}: missing; every claim has one")
    for key, options in {
        "test": Test,
        "over": Quantifier,
        "of": Of,
        "direction": Direction,
    }.items():
        if key in keys:
            check_choice(f"claims.{name}.{key}", keys[key], get_args(options))
    check_number(f"claims.{name}.margin", keys.get("margin", 0.0))
    needed = {"trend": ["levels"], "differ": ["levels"], "contrast": ["terms"]}
    for key in needed.get(keys["test"], ["left", "right"]):
        if key not in keys or keys[key] == []:
            raise ConfigError(f"claims.{name}.{key}: missing; test={keys['test']} needs it")
    claim = Claim(name=name, **keys)
    try:
        claim.members()
    except ConfigError as error:
        raise ConfigError(f"claims.{name}: {error}") from error
    return claim
