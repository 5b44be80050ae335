"""Claims of a report folder: read as data, and none of them believed."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robust_diffusion.attacks import Budget
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.evaluation.report import REPORT, graph_file
from robust_diffusion.results.worst_case import KIND


@dataclass(frozen=True)
class AttackClaim:
    """The claims about one attack; fields as of `AttackReport`."""

    name: str
    kind: str
    accuracy: float
    is_control: bool
    made_on: str
    spent: Mapping[str, Any]


@dataclass(frozen=True)
class Claims:
    """The claims of a report; fields as of `RobustnessReport`.

    Args:
        folder: It was read from.
    """

    folder: Path
    model: str
    dataset: str
    clean_graph: str
    weights: str
    clean_accuracy: float
    budget: Budget
    threat: str
    seed: int
    attacks: Sequence[AttackClaim]

    @property
    def source(self) -> str:
        """Name of the report."""
        return self.folder.resolve().name

    @property
    def robust_accuracy(self) -> float:
        """The lowest accuracy under any attack that it claims."""
        return min(attack.accuracy for attack in self.attacks)

    def graph(self, attack: AttackClaim) -> Path:
        """File of an attack's graph."""
        return self.folder / graph_file(attack.name)


def read_claims(folder: str | Path) -> Claims:
    """Read `report.json` of a folder.

    Args:
        folder: As `RobustnessReport.save` has written it.

    Raises:
        DataError: It is missing, or says something that no report says.
    """
    path = Path(folder) / REPORT
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path}: not found; name a folder that report.save() has made") from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read as a report ({error})") from error
    values = _checked(given, REPORT_FIELDS, path, "")
    try:
        budget = Budget(**values.pop("budget"))
    except (ConfigError, TypeError) as error:
        raise DataError(f"{path}: its budget is none ({error})") from error
    attacks = [
        AttackClaim(**_checked(attack, ATTACK_FIELDS, path, f"attacks[{number}].", optional=()))
        for number, attack in enumerate(values.pop("attacks"))
    ]
    names = [attack.name for attack in attacks]
    if not names or len({graph_file(name) for name in names}) < len(names) or "clean" in names:
        raise DataError(f"{path}: its attacks are named {', '.join(names) or 'not at all'}")
    return Claims(folder=Path(folder), budget=budget, attacks=attacks, **values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= 1


def _is_seed(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32


LONGEST = 200
"""Letters of a name."""

Fits = Callable[[Any], bool]

REPORT_FIELDS: Mapping[str, Fits] = {
    "model": _is_text,
    "dataset": _is_text,
    "clean_graph": _is_text,
    "weights": _is_text,
    "clean_accuracy": _is_share,
    "budget": lambda value: isinstance(value, dict),
    "threat": lambda value: value in tuple(KIND),
    "seed": _is_seed,
    "attacks": lambda value: isinstance(value, list),
}
ATTACK_FIELDS: Mapping[str, Fits] = {
    "name": lambda value: _is_text(value) and value != "",
    "kind": lambda value: value in ("injection", "modification"),
    "accuracy": _is_share,
    "is_control": lambda value: isinstance(value, bool),
    "made_on": _is_text,
    "spent": lambda value: isinstance(value, dict),
}
LATER = ("dataset", "clean_graph", "weights")
"""Fields that reports of older versions lack."""


def _checked(
    given: Any, wanted: Mapping[str, Fits], path: Path, where: str, optional: Sequence[str] = LATER
) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise DataError(f"{path}: {where.rstrip('.') or 'it'} is no set of claims")
    found = dict.fromkeys(optional, "") | given
    for key, fits in wanted.items():
        if key not in found or not fits(found[key]):
            raise DataError(f"{path}: has no proper {where}{key}")
    return {key: found[key] for key in wanted}
