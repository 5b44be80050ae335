"""Claims: what a sentence of the paper says about records, read from `conf/claims.yaml`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from robust_diffusion.checks import check_choice, check_number
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.claims.group import Group, group

CLAIMS = CONFIG_DIR / "claims.yaml"

Test = Literal["greater", "equivalent", "contrast", "trend", "differ"]
Quantifier = Literal["all", "average"]
Of = Literal["level", "spread"]
Direction = Literal["up", "down"]

Terms = tuple[tuple[float, Group], ...]
"""Weighted groups: a contrast."""

Axes = Mapping[str, Any]


@dataclass(frozen=True)
class Member:
    """One of the statements that a claim consists of.

    Args:
        label: What tells it from the others.
        dataset: The dataset it is about, if members are about different ones.
        terms: The contrast that it tests.
        levels: Per level its number and group, of a test of levels.
    """

    label: str
    dataset: str | None
    terms: Terms = ()
    levels: tuple[tuple[float, Group], ...] = ()

    @property
    def groups(self) -> list[Group]:
        """Every group it needs."""
        return list(dict.fromkeys(g for _, g in (*self.terms, *self.levels)))


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper as a test over records.

    Args:
        name: Its own.
        quote: The paper's words.
        place: Label of the table, figure or section.
        test: `greater`: left above right by more than the margin; `equivalent`: within the margin
            of each other; `contrast`: a weighted sum of terms above the margin; `trend`: from level
            to level in the direction; `differ`: some levels differ.
        reading: How the sentence is read, where that is a choice.
        over: `all` members must hold, or their `average`.
        of: What is compared: the `level`, or the `spread` over seeds.
        margin: In points of accuracy; of other measures, a factor.
        direction: Of a trend.
        select: Axes of all sides.
        each: Axis -> values; every combination is a member. `left.model`, say, is an axis of the
            left side alone.
        left: Axes of the left side; a list of values is their mean.
        right: Of the right side.
        terms: Of a contrast: `weight` and axes each.
        levels: Of a test of levels: axes each, and for a trend the number it is `at`.
    """

    name: str
    quote: str
    place: str
    test: Test
    reading: str = ""
    over: Quantifier = "all"
    of: Of = "level"
    margin: float = 0.0
    direction: Direction = "up"
    select: Axes = field(default_factory=dict)
    each: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    left: Axes = field(default_factory=dict)
    right: Axes = field(default_factory=dict)
    terms: Sequence[Axes] = ()
    levels: Sequence[Axes] = ()

    def members(self) -> list[Member]:
        """The statements it consists of.

        Raises:
            ConfigError: A selection that does not fit.
        """
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
                (float(level.get("at", i)), self._single(level, chosen))
                for i, level in enumerate(self.levels)
            )
            return Member(label, dataset, levels=levels)
        if self.test == "contrast":
            sides = [(float(term["weight"]), term, "") for term in self.terms]
        else:
            sides = [(1.0, self.left, "left."), (-1.0, self.right, "right.")]
        weights: dict[Group, float] = {}
        for weight, axes, side in sides:
            found = self._groups(axes, chosen, side)
            for one in found:
                weights[one] = weights.get(one, 0.0) + weight / len(found)
        return Member(label, dataset, tuple((w, g) for g, w in weights.items() if w))

    def _single(self, axes: Axes, chosen: Mapping[str, Any]) -> Group:
        (found,) = self._groups(axes, chosen, "") or (None,)
        assert found is not None
        return found

    def _groups(self, axes: Axes, chosen: Mapping[str, Any], side: str) -> list[Group]:
        """Every combination of the values of one side's axes."""
        own = {axis: v for axis, v in chosen.items() if "." not in axis}
        own |= {
            axis.removeprefix(side): v
            for axis, v in chosen.items()
            if side and axis.startswith(side)
        }
        whole = {**self.select, **axes, **own}
        whole = {axis: v for axis, v in whole.items() if axis not in ("weight", "at")}
        values = [v if isinstance(v, list) else [v] for v in whole.values()]
        return [group(dict(zip(whole, one, strict=True))) for one in product(*values)]


@dataclass(frozen=True)
class Claims:
    """The file of claims.

    Args:
        alpha: Level of the tests, in 0..1.
        min_seeds: Fewest values of a group that says anything, at least 2.
        claims: By name.
        elsewhere: Sentences that records cannot decide: quote -> where they are looked at.
    """

    alpha: float
    min_seeds: int
    claims: Mapping[str, Claim]
    elsewhere: Mapping[str, str]


def load_claims(path: str | Path = CLAIMS) -> Claims:
    """Read and check a file of claims.

    Args:
        path: A YAML file as `conf/claims.yaml`, which explains its keys.

    Raises:
        ConfigError: It cannot be read, or a claim does not fit together.
    """
    try:
        node: Any = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"{path}: cannot be read ({' '.join(str(error).split())})") from error
    if not isinstance(node, dict) or set(node) != {"alpha", "min_seeds", "claims", "elsewhere"}:
        raise ConfigError(
            f"{path}: needs the keys alpha, min_seeds, claims and elsewhere, no other"
        )
    return Claims(
        alpha=check_number("alpha", node["alpha"], above=0, below=1),
        min_seeds=int(check_number("min_seeds", node["min_seeds"], at_least=2)),
        claims={name: parse_claim(name, keys) for name, keys in node["claims"].items()},
        elsewhere=node["elsewhere"],
    )


def parse_claim(name: str, keys: Mapping[str, Any]) -> Claim:
    """Read and check one claim.

    Args:
        name: Its name.
        keys: Of `Claim`.

    Raises:
        ConfigError: A key or value that is missing, unknown or does not fit.
    """
    known = {f.name for f in fields(Claim)} - {"name"}
    for key in keys:
        check_choice(f"claims.{name}", key, known)
    for key in ("quote", "place", "test"):
        if not isinstance(keys.get(key), str):
            raise ConfigError(f"claims.{name}.{key}: missing; every claim has one")
    for key, options in (
        ("test", Test),
        ("over", Quantifier),
        ("of", Of),
        ("direction", Direction),
    ):
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
