"""Reports of several models on one graph, in one table."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import pandas as pd

from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.report import AttackReport, RobustnessReport
from robust_diffusion.system.numbers import Estimate

_SHARED = ("clean_graph", "num_targets", "threat", "seed", "budget")
"""Fields in which reports must agree, so that their accuracies are measured alike."""


def compare(reports: Sequence[RobustnessReport] | Mapping[str, RobustnessReport]) -> pd.DataFrame:
    """Tabulate the accuracy of several models by attack, and their differences from the first.

    The reports must share graph, target nodes, budget, threat and seed, so that each difference is
    between accuracies at the same nodes. Transferred attacks are even the same graphs.

    Args:
        reports: At least two reports of `evaluate`, or a dictionary of them with custom names. In
            a sequence, each is named by its model.

    Returns:
        A frame with a row for the clean graph, one per attack in any report, and one for the
        `worst` case. Shares are in 0..1, NaN for an attack that a report lacks. The columns are
        `attack`; the accuracy by report; `<name> - <first>`, the difference of each further report
        from the first; and `flags`, the codes by report. If reports have several attack seeds, a
        difference is the mean over pairs of the same seed, and the columns `<name> - <first>, low`
        and `high` bound it at 95 % (Student's t). The differences of the clean graph and of the
        worst case have no interval.

    Raises:
        ConfigError: There are fewer than two reports, or they differ in what they must share.

    Examples:
        >>> from robust_diffusion import Budget, evaluate
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> from robust_diffusion.evaluation import compare
        >>> from robust_diffusion.models import GCN, MLP
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> models = [GCN(8, 8, out_channels=7), MLP(8, 8, out_channels=7)]
        >>> budget = Budget(2, 3)
        >>> reports = [evaluate(m, data, budget=budget, attacks="random") for m in models]
        >>> list(compare(reports).columns)
        ['attack', 'GCN', 'MLP', 'MLP - GCN', 'flags']
    """
    named = _named(reports)
    (first, base), *others = named.items()
    for name, report in others:
        for key in _SHARED:
            if getattr(report, key) != getattr(base, key):
                raise ConfigError(
                    f"reports: {name} and {first} differ in {key}; evaluate both with the same one"
                )
    rows = [_row("clean", {name: report.clean_accuracy for name, report in named.items()})]
    attacks = list(dict.fromkeys(row.name for row in chain.from_iterable(named.values())))
    for attack in attacks:
        of_attack = {name: report[attack] for name, report in named.items() if attack in report}
        accuracies = {name: row.accuracy for name, row in of_attack.items()}
        rows.append(_row(attack, {name: accuracies.get(name, math.nan) for name in named}))
        rows[-1] |= {key: value for name in named for key, value in _paired(of_attack, first, name)}
        rows[-1]["flags"] = _flags(of_attack)
    rows.append(_row("worst", {name: report.robust_accuracy for name, report in named.items()}))
    rows[-1]["flags"] = _flags({name: report.worst for name, report in named.items()})
    frame = pd.DataFrame(rows)
    return frame[[*(column for column in frame if column != "flags"), "flags"]]


def _named(
    reports: Sequence[RobustnessReport] | Mapping[str, RobustnessReport],
) -> dict[str, RobustnessReport]:
    """Return the reports by name; models of one class are numbered."""
    if not isinstance(reports, Mapping):
        named: dict[str, RobustnessReport] = {}
        for report in reports:
            same = sum(name.split(" ")[0] == report.model for name in named)
            named[f"{report.model} {same + 1}" if same else report.model] = report
        reports = named
    if len(reports) < 2:
        raise ConfigError(f"reports: expected at least 2, got {len(reports)}; use print(report)")
    return dict(reports)


def _row(attack: str, accuracies: Mapping[str, float]) -> dict[str, object]:
    first, *others = accuracies
    differences = {f"{name} - {first}": accuracies[name] - accuracies[first] for name in others}
    return {"attack": attack, **accuracies, **differences, "flags": ""}


def _paired(rows: Mapping[str, AttackReport], first: str, name: str) -> Iterator[tuple[str, float]]:
    """Yield the mean difference over attack seeds, and its interval, if both have several."""
    if name == first or not {name, first} <= rows.keys():
        return
    pairs = [*zip(rows[name].by_seed, rows[first].by_seed, strict=False)]
    if len(pairs) < 2:
        return
    # Rounded, since rounding errors of equal differences would look like a spread.
    estimate = Estimate.of([round(accuracy - other, 9) for accuracy, other in pairs])
    low, high = estimate.interval
    column = f"{name} - {first}"
    yield from [(column, estimate.effect), (f"{column}, low", low), (f"{column}, high", high)]


def _flags(rows: Mapping[str, AttackReport]) -> str:
    """Return the codes of the flags by report."""
    codes = {name: dict.fromkeys(flag.code for flag in row.flags) for name, row in rows.items()}
    return "; ".join(f"{name}: {', '.join(of_row)}" for name, of_row in codes.items() if of_row)
