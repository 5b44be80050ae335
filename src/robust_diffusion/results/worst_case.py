"""One worst case per model: the lowest accuracy that any recorded attack reached, with controls."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import pandas as pd

from robust_diffusion.attacks import Budget
from robust_diffusion.evaluation.records import Record, experiments_asking, latest_by_cell
from robust_diffusion.results.captions import describe_cuts, describe_limits, ranges
from robust_diffusion.results.cells import CLEAN, is_tested, settings_of
from robust_diffusion.results.evidence import BEFORE, SEEN, THOROUGH, Evidence, outcomes_of
from robust_diffusion.results.model_names import model_name, told_apart
from robust_diffusion.results.numbers import spread
from robust_diffusion.results.table import ResultTable

COLUMNS: tuple[Evidence, ...] = ("clean", "chance", "transfer", "white_box", "adaptive", "worst")

EXPERIMENTS = (
    *("worst-case", "worst-case-models", "worst-case-graphs", "worst-case-splits"),
    *("single-attacks", "successors", "adversarial"),
)
"""Experiments whose cells are brought together on every page."""


@dataclass
class ModelOnSplit:
    """One trained model under everything that was tried on it.

    Args:
        lowest: Per kind of evidence the lowest accuracy, in 0..1.
        attack: The attack that reached the worst case, and its part or its threat model.
        flags: Codes of what speaks against the worst case as a bound.
        known_by: Attacks by those who know the model.
    """

    lowest: dict[Evidence, float] = field(default_factory=dict)
    attack: str = ""
    flags: set[str] = field(default_factory=set)
    known_by: set[str] = field(default_factory=set)

    @property
    def transfers(self) -> set[Evidence]:
        """Kinds of evidence of transferred attacks, by their surrogates."""
        return {kind for kind in self.lowest if kind.startswith("transfer")}


class Key(NamedTuple):
    """Common traits of cells that are brought together; see `worst_cases`."""

    dataset: str
    variant: str  # of the model's equations
    model: str  # or its flow
    budget: Budget  # of every attack


Draw = tuple[Any, str]
"""Seed, or hash of the weights of a model from elsewhere; and hash of the split."""

CONTROL = "mlp"
"""The model that no edge can hurt."""


def recorded_on(
    records: Sequence[Record], experiments: Collection[str], scale: str = "full"
) -> list[Record]:
    """All finished cells on the models and budgets for which some of `EXPERIMENTS` asked.

    So one model has one worst case, whichever experiment's page shows it.

    Args:
        records: Of anything.
        experiments: Of which the models are; of others than `EXPERIMENTS`, their own cells.
        scale: Of the runs.
    """
    asking = experiments_asking(records)
    together = not set(EXPERIMENTS).isdisjoint(experiments)
    counted = {*experiments, *(EXPERIMENTS if together else ())}
    found = [
        (record, set(asking.get(cell, ())))
        for cell, record in latest_by_cell(records).items()
        if is_tested(record) and record.get("scale", "full") == scale
    ]
    wanted = {_attacked(record) for record, of in found if of & set(experiments)}
    return [record for record, of in found if of & counted and _attacked(record) in wanted]


def _attacked(record: Record) -> tuple[Any, ...]:
    return (key_of(record), settings_of(record, CLEAN))


def key_of(record: Record) -> Key:
    """The key under which a cell is brought together with others."""
    budget = Budget(**record["budget"]["declared"])
    return Key(record["dataset"], record["fidelity"], model_name(record), budget)


def draw_of(record: Record) -> Draw:
    """The trained model of a cell among those of its key."""
    return record.get("weights", record["seed"]), str(record.get("split", ""))


def worst_cases(records: Sequence[Record]) -> dict[Key, dict[Draw, ModelOnSplit]]:
    """Everything that was tried on each trained model within one budget, brought together.

    Of the models of one key only those count that were attacked as thoroughly as any of them: by
    `auto` that knows the model, else by any attack that does.

    Args:
        records: Cells under any threat models; failed ones are left out.
    """
    found: dict[Key, dict[Draw, list[Record]]] = {}
    for record in latest_by_cell(records).values():
        if is_tested(record):
            found.setdefault(key_of(record), {}).setdefault(draw_of(record), []).append(record)
    return {
        key: _complete({draw: _brought_together(of) for draw, of in drawn.items()})
        for key, drawn in found.items()
    }


def _complete(drawn: dict[Draw, ModelOnSplit]) -> dict[Draw, ModelOnSplit]:
    depth = {d: (THOROUGH in model.known_by, bool(model.known_by)) for d, model in drawn.items()}
    return {draw: model for draw, model in drawn.items() if depth[draw] == max(depth.values())}


def _brought_together(records: Sequence[Record]) -> ModelOnSplit:
    outcomes = [outcome for record in records for outcome in outcomes_of(record)]
    model = ModelOnSplit({"clean": min(record["accuracy"][CLEAN] for record in records)})
    for outcome in outcomes:
        for kind, lowest in outcome.kinds.items():
            model.lowest[kind] = min(lowest, model.lowest.get(kind, 1.0))
        if not outcome.kinds.keys().isdisjoint(SEEN):
            model.known_by.add(outcome.name)
    if not outcomes:
        return model
    worst = model.lowest["worst"] = min(outcome.reached for outcome in outcomes)
    at_worst = [outcome for outcome in outcomes if outcome.reached == worst]
    model.attack = min(outcome.words for outcome in at_worst)
    if worst == 0:  # no attack could do more
        return model
    model.flags |= {code for outcome in at_worst for code in outcome.flags}
    model.flags |= {code for record in records for code in _flags_of_victim(record)}
    seen = min((model.lowest[k] for k in SEEN if k in model.lowest), default=0.0)
    for kind in ("chance", *model.transfers):
        if model.lowest.get(kind, 1.0) < seen:
            model.flags.add(f"weaker_than_{kind.split()[0]}")
    return model


def _flags_of_victim(record: Record) -> Iterator[str]:
    yield from record.get("flags", {}).get("victim", [])
    if record.get("config", {}).get("data", {}).get("degree_leak", False):
        yield "degree_leak"


def worst_case_table(records: Sequence[Record]) -> pd.DataFrame:
    """Clean accuracy, each kind of evidence, the worst case, and what of it is above an MLP.

    Args:
        records: As for `worst_cases`.

    Returns:
        One row per dataset, variant, budget and model, the highest above the MLP first: `budget` in
        words, its injected `nodes` and `edges` of each; `seeds`, `splits`; the columns of
        `COLUMNS`, means in % over seeds and splits, NaN where nothing was tried; `fewer`, the
        number of models behind a mean over some of them; `surrogates` of the transfer, under the
        present `auto` if there is any; `spread`, the standard deviation of the worst case;
        `above_mlp`, the mean over pairs of one seed and split in points; `thorough`, true if `auto`
        attacked the models themselves; `bound`, false where any flag was raised; `flags`; and `by`,
        the attack that most often reached the worst case, empty where none cost any accuracy.
    """
    return table_of(worst_cases(records))


def table_of(found: Mapping[Key, Mapping[Draw, ModelOnSplit]]) -> pd.DataFrame:
    """`worst_case_table` of what `worst_cases` has found."""
    frame = pd.DataFrame([row_of(key, found) for key in found])
    if frame.empty:
        return frame
    order = {"dataset": True, "variant": True, "edges": True, "nodes": True, "above_mlp": False}
    order["model"] = True
    return frame.sort_values(list(order), ascending=list(order.values()), ignore_index=True)


def row_of(key: Key, found: Mapping[Key, Mapping[Draw, ModelOnSplit]]) -> dict[str, Any]:
    """One row of `worst_case_table`."""
    drawn, control = found[key], found.get(key._replace(model=CONTROL), {})
    worst = {draw: model.lowest.get("worst") for draw, model in drawn.items()}
    line = {draw: model.lowest["clean"] for draw, model in control.items()}
    above = [100 * (w - line[draw]) for draw, w in worst.items() if w is not None and draw in line]
    flags = sorted({code for model in drawn.values() for code in model.flags})
    of_transfer = Counter(kind for model in drawn.values() for kind in model.transfers)
    transfer = max(of_transfer, key=lambda k: (BEFORE not in k, of_transfer[k], k), default="")
    values = {
        kind: pd.Series(
            [
                100 * model.lowest[of]
                for model in drawn.values()
                if (of := transfer if kind == "transfer" else kind) in model.lowest
            ],
            dtype=float,
        ).sort_values()  # so that rounding does not go by the order of records
        for kind in COLUMNS
    }
    return {
        "dataset": key.dataset,
        "variant": key.variant,
        "model": key.model,
        "budget": limits_in_words(key.budget),
        "nodes": key.budget.max_injected_nodes,
        "edges": key.budget.max_edges_per_injected_node,
        "seeds": len({seed for seed, _ in drawn}),
        "splits": len({split for _, split in drawn}),
        **{kind: of.mean() for kind, of in values.items()},
        "fewer": {kind: len(of) for kind, of in values.items() if len(of) < len(drawn)},
        "surrogates": transfer.removeprefix("transfer").removeprefix(" from "),
        "spread": values["worst"].std(),
        "above_mlp": pd.Series(above, dtype=float).sort_values().mean(),
        "thorough": any(THOROUGH in model.known_by for model in drawn.values()),
        "bound": not flags,
        "flags": ", ".join(flags),
        "by": _most_frequent(list(drawn.values())),
    }


def _most_frequent(models: Sequence[ModelOnSplit]) -> str:
    hurt = Counter(m.attack for m in models if m.lowest.get("worst", math.inf) < m.lowest["clean"])
    if not hurt:
        return ""
    attack = max(sorted(hurt), key=hurt.__getitem__)
    times = hurt[attack]
    return attack if times == len(models) else f"{attack}, {times} of {len(models)}"


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
        shown[kind.replace("_", " ")] = [
            spread(_given(v), None, 2) + (f" (n={of[kind]})" if of.get(kind) else "")
            for v, of in zip(frame[kind], frame["fewer"], strict=True)
        ]
        if kind == "transfer" and frame["surrogates"].any():
            shown["from"] = [surrogates or "-" for surrogates in frame["surrogates"]]
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
    texts = [*keys, *({"from"} & set(shown)), "by"]
    return ResultTable("; ".join([title, *describe_cuts(records)]), shown, texts, notes)


def limits_in_words(budget: Budget) -> str:
    """Limits of an injection."""
    return describe_limits(ranges([asdict(budget)]), ["injected_nodes"])


def differing(frame: pd.DataFrame, columns: Iterable[str]) -> list[str]:
    """The columns in which rows differ."""
    return [column for column in columns if len(set(frame[column])) > 1]


def _given(value: float) -> float | None:
    return None if math.isnan(value) else value
