"""One worst case per model: the lowest accuracy that any recorded attack reached, with controls."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import pandas as pd

from robust_diffusion.attacks import Budget
from robust_diffusion.evaluation.records import Record, latest_by_cell
from robust_diffusion.results.captions import describe_cuts, describe_limits, ranges
from robust_diffusion.results.cells import is_tested
from robust_diffusion.results.model_names import model_name, told_apart
from robust_diffusion.results.numbers import spread
from robust_diffusion.results.table import ResultTable

Evidence = Literal["clean", "chance", "transfer", "white_box", "adaptive", "worst"]
COLUMNS: tuple[Evidence, ...] = ("clean", "chance", "transfer", "white_box", "adaptive", "worst")

CHANCE = frozenset(["random", "random_flip"])
"""Attacks that look at no model."""

KIND: Mapping[str, Evidence] = {
    "black_box": "transfer",
    "white_box": "white_box",
    "adaptive": "adaptive",
}
"""Threat model of a cell -> column of the accuracy under its attacks."""


@dataclass
class ModelOnSplit:
    """One trained model under everything that was tried on it.

    Args:
        lowest: Per kind of evidence the lowest accuracy, in 0..1.
        attack: The attack that reached the worst case, and its part or its threat model.
        flags: Codes of what speaks against the worst case as a bound.
    """

    lowest: dict[Evidence, float] = field(default_factory=dict)
    attack: str = ""
    flags: set[str] = field(default_factory=set)


SEEN: tuple[Evidence, ...] = ("white_box", "adaptive")
"""Kinds of evidence of an attacker who knows the model."""


class Key(NamedTuple):
    """Common traits of cells that are brought together; see `worst_cases`."""

    dataset: str
    variant: str  # of the model's equations
    model: str  # or its flow
    budget: Budget  # of every attack


Draw = tuple[int, str]
"""Seed, and hash of the split."""

CONTROL = "mlp"
"""The model that no edge can hurt."""


def worst_cases(records: Sequence[Record]) -> dict[Key, dict[Draw, ModelOnSplit]]:
    """Everything that was tried on each trained model within one budget, brought together.

    Args:
        records: Cells under any threat models; failed ones are left out.
    """
    found: dict[Key, dict[Draw, ModelOnSplit]] = {}
    for record in latest_by_cell(records).values():
        if not is_tested(record):
            continue
        budget = Budget(**record["budget"]["declared"])
        key = Key(record["dataset"], record["fidelity"], model_name(record), budget)
        draw = (record["seed"], record.get("split", ""))
        _add(found.setdefault(key, {}).setdefault(draw, ModelOnSplit()), record)
    for drawn in found.values():
        for model in drawn.values():
            _compare_evidence(model)
    return found


def _add(model: ModelOnSplit, record: Record) -> None:
    accuracy: Mapping[str, float] = record["accuracy"]
    model.lowest["clean"] = accuracy["clean"]
    for attack, reached in accuracy.items():
        if attack == "clean":
            continue
        for kind, lowest in _evidence(record, attack, reached):
            model.lowest[kind] = min(lowest, model.lowest.get(kind, 1.0))
        if reached < model.lowest.get("worst", math.inf):
            model.lowest["worst"] = reached
            model.attack = attack_in_words(record, attack)
            model.flags = _flags(record, attack)


def _evidence(record: Record, attack: str, reached: float) -> Iterator[tuple[Evidence, float]]:
    """Kind and accuracy of an attack; of one in parts on the model itself, of each part."""
    kind = _kind(record, attack)
    if kind is None:  # a threat model of the user's
        return
    parts = _parts(record, attack)
    if not parts:
        yield kind, reached
    for part, lowest in parts.items():
        yield ("adaptive" if part.startswith("adaptive") else kind), lowest


def _kind(record: Record, attack: str) -> Evidence | None:
    return "chance" if attack in CHANCE else KIND.get(record.get("threat", ""))


def _parts(record: Record, attack: str) -> Mapping[str, float]:
    """Accuracy that each part of an attack on the model itself reached; none of other attacks."""
    seen = _kind(record, attack) in SEEN
    parts: Mapping[str, float] = record.get("parts", {}).get(attack, {}) if seen else {}
    return parts


def attack_in_words(record: Record, attack: str) -> str:
    """An attack with its most harmful part, or the threat model of its cell."""
    if attack in CHANCE:
        return attack
    parts = _parts(record, attack)
    how = _kind(record, attack) or str(record.get("threat"))
    return f"{attack} ({min(parts, key=parts.__getitem__) if parts else how.replace('_', ' ')})"


def _flags(record: Record, attack: str) -> set[str]:
    flags = record.get("flags", {})
    leaks = record.get("config", {}).get("data", {}).get("degree_leak", False)
    return {*flags.get(attack, []), *flags.get("victim", []), *(["degree_leak"] if leaks else [])}


def _compare_evidence(model: ModelOnSplit) -> None:
    """Flag a model on which knowing it was worth less than not knowing it."""
    if model.lowest.get("worst") == 0:
        model.flags.clear()  # no attack could do more
        return
    seen = min((model.lowest[k] for k in SEEN if k in model.lowest), default=0.0)
    for kind in ("chance", "transfer"):
        if model.lowest.get(kind, 1.0) < seen:
            model.flags.add(f"weaker_than_{kind}")


def worst_case_table(records: Sequence[Record]) -> pd.DataFrame:
    """Clean accuracy, each kind of evidence, the worst case, and what of it is above an MLP.

    Args:
        records: As for `worst_cases`.

    Returns:
        One row per dataset, variant, budget and model, the highest above the MLP first: `budget` in
        words, its injected `nodes` and `edges` of each; `seeds`, `splits`; the columns of
        `COLUMNS`, means in % over seeds and splits, NaN where nothing was tried; `spread`, the
        standard deviation of the worst case; `above_mlp`, the mean over pairs of one seed and split
        in points; `bound`, false where any flag was raised; `flags`; and `by`, the attack that most
        often reached the worst case, empty where none cost any accuracy.
    """
    found = worst_cases(records)
    rows = [
        _row(key, drawn, found.get(key._replace(model=CONTROL), {})) for key, drawn in found.items()
    ]
    frame = pd.DataFrame(rows)
    if frame.empty:
        return frame
    order = {"dataset": True, "variant": True, "edges": True, "nodes": True, "above_mlp": False}
    return frame.sort_values(
        list(order), ascending=list(order.values()), kind="stable", ignore_index=True
    )


def _row(
    key: Key, drawn: Mapping[Draw, ModelOnSplit], control: Mapping[Draw, ModelOnSplit]
) -> dict[str, Any]:
    worst = {draw: model.lowest.get("worst") for draw, model in drawn.items()}
    line = {draw: model.lowest["clean"] for draw, model in control.items()}
    above = [100 * (w - line[draw]) for draw, w in worst.items() if w is not None and draw in line]
    flags = sorted({code for model in drawn.values() for code in model.flags})
    return {
        "dataset": key.dataset,
        "variant": key.variant,
        "model": key.model,
        "budget": limits_in_words(key.budget),
        "nodes": key.budget.max_injected_nodes,
        "edges": key.budget.max_edges_per_injected_node,
        "seeds": len({seed for seed, _ in drawn}),
        "splits": len({split for _, split in drawn}),
        **{kind: _mean(m.lowest.get(kind) for m in drawn.values()) for kind in COLUMNS},
        "spread": 100 * pd.Series([w for w in worst.values() if w is not None]).std(),
        "above_mlp": pd.Series(above, dtype=float).mean(),
        "bound": not flags,
        "flags": ", ".join(flags),
        "by": _most_frequent(list(drawn.values())),
    }


def _most_frequent(models: Sequence[ModelOnSplit]) -> str:
    hurt = [m.attack for m in models if m.lowest.get("worst", math.inf) < m.lowest["clean"]]
    for attack, times in Counter(hurt).most_common(1):
        return attack if times == len(models) else f"{attack}, {times} of {len(models)}"
    return ""


def _mean(values: Iterable[float | None]) -> float:
    return 100 * float(pd.Series([v for v in values if v is not None], dtype=float).mean())


def show_worst_cases(records: Sequence[Record]) -> ResultTable:
    """The worst cases of a run as text, a model that is flagged marked as no bound.

    Args:
        records: Of the run, failed cells included.
    """
    frame = worst_case_table(told_apart(records))
    if frame.empty:
        return ResultTable("no finished cell", pd.DataFrame({"model": []}), ["model"], [])
    keys = [*differing(frame, ["dataset", "variant", "budget"]), "model"]
    draws = ["seeds", "splits"] if frame["splits"].max() > 1 else ["seeds"]
    shown = frame[[*keys, *draws]].copy()
    for kind in (kind for kind in COLUMNS[:-1] if frame[kind].notna().any()):
        shown[kind.replace("_", " ")] = [spread(_given(v), None, 2) for v in frame[kind]]
    worst = zip(frame["worst"], frame["spread"], frame["bound"], strict=True)
    shown["worst"] = [
        spread(_given(mean), _given(std), 2) + ("" if bound else " !") for mean, std, bound in worst
    ]
    if frame["above_mlp"].notna().any():
        shown["above MLP"] = [spread(_given(v), None, 2) for v in frame["above_mlp"]]
    shown["by"] = [attack or "-" for attack in frame["by"]]
    flagged = zip(frame["model"], frame["flags"], strict=True)
    notes = [f"! {model}: not a bound: {flags}" for model, flags in flagged if flags]
    budgets = "" if "budget" in keys else f" within {frame['budget'].iloc[0]}"
    datasets = ", ".join(frame["dataset"].unique())
    title = f"{datasets}: lowest accuracy in % that any attack reached{budgets}"
    return ResultTable("; ".join([title, *describe_cuts(records)]), shown, [*keys, "by"], notes)


def limits_in_words(budget: Budget) -> str:
    """Limits of an injection."""
    return describe_limits(ranges([asdict(budget)]), ["injected_nodes"])


def differing(frame: pd.DataFrame, columns: Iterable[str]) -> list[str]:
    """The columns in which rows differ."""
    return [column for column in columns if len(set(frame[column])) > 1]


def _given(value: float) -> float | None:
    return None if math.isnan(value) else value
