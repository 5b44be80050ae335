"""Conclusions: the sentences that open the page, their numbers taken from records."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from robust_diffusion.evaluation.records import Record
from robust_diffusion.paper.agreement import Agreement
from robust_diffusion.paper.axes import label_of
from robust_diffusion.paper.claims import recorded_evidence
from robust_diffusion.paper.claims.group import MLP, group
from robust_diffusion.paper.page.verdicts import TESTED
from robust_diffusion.paper.page.worst import FLOW, UNIFORM
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.results.cells import CLEAN
from robust_diffusion.results.entry import BAND
from robust_diffusion.results.numbers import signed
from robust_diffusion.results.paired import LEVEL, pairs
from robust_diffusion.results.significance import mean_interval
from robust_diffusion.results.worst_case import CONTROL, worst_case_table, worst_cases

DATASET = "cora"
ATTACKS = ("speit", "tdgia")

TRANSFERRED = (1, 2, 3)
"""Tables of attacks that were made on another network."""

NETWORKS = ("gat", "graph_sage", "gin", "appnp")
"""Networks of table 1 without a defence."""

Accuracies = Mapping[str, Mapping[str, float]]
"""Model -> accuracy in % by test graph."""


class Conclusion(NamedTuple):
    """A sentence, and the tables, or else the parts of the page, that it rests on."""

    text: str
    basis: tuple[int | str, ...]


def conclude(
    records: Sequence[Record],
    tables: Mapping[int, PaperTable],
    worst: Sequence[Record],
    agreeing: Agreement,
    verdicts: Mapping[str, Any],
    fidelity: str,
) -> list[Conclusion]:
    """The conclusions that records of one variant allow; one without its records is left out.

    Args:
        records: All of them.
        tables: Of the variant, by number.
        worst: Cells of the variant's worst cases.
        agreeing: Agreement of the tables with the paper.
        verdicts: As of `judge_all`.
        fidelity: The variant.
    """
    accuracies = _transferred(tables)
    mlp = group({"experiment": MLP, "model": MLP, "dataset": DATASET, "attack": CLEAN})
    line = recorded_evidence(records, fidelity=fidelity)(mlp).values
    own = [record for record in worst if record["dataset"] == DATASET]
    return [
        *_networks(accuracies),
        *(_above(accuracies, fmean(line.values())) if line else ()),
        *_worst(own),
        *_control(own),
        *_agreement(agreeing, verdicts),
    ]


def _transferred(tables: Mapping[int, PaperTable]) -> Accuracies:
    """Models that are measured clean and under every attack."""
    found: dict[str, dict[str, float]] = {}
    for number in TRANSFERRED:
        for _, _, entry in tables[number]:
            if entry.keys["dataset"] == DATASET and entry.mean is not None:
                found.setdefault(entry.keys["model"], {})[entry.graph] = entry.mean
    return {model: of for model, of in found.items() if of.keys() >= {CLEAN, *ATTACKS}}


def _networks(accuracies: Accuracies) -> Iterator[Conclusion]:
    networks = [name for name in NETWORKS if name in accuracies]
    if FLOW not in accuracies or not networks:
        return

    def change(names: Sequence[str]) -> str:
        clean = fmean(accuracies[name][CLEAN] for name in names)
        attacked = fmean(accuracies[name][attack] for name in names for attack in ATTACKS)
        return f"from {_percent(clean)} to {_percent(attacked)}"

    yield Conclusion(
        f"Attacks made on another network take {label_of('model', FLOW)} {change([FLOW])} on "
        f"{label_of('dataset', DATASET)}, the average network without a defence "
        f"({_named(networks)}) {change(networks)}.",
        (1,),
    )


def _above(accuracies: Accuracies, line: float) -> Iterator[Conclusion]:
    lowest = {name: min(of[attack] for attack in ATTACKS) for name, of in accuracies.items()}
    above = [name for name in sorted(lowest, key=lambda n: -lowest[n]) if lowest[name] > line]
    if lowest:
        yield Conclusion(
            f"An MLP, which no edge can hurt, has {_percent(line)} on the same targets; "
            f"{len(above)} of {len(lowest)} models stay above it under each of these attacks"
            f"{f' ({_named(above)})' if above else ''}.",
            TRANSFERRED,
        )


def _worst(records: Sequence[Record]) -> Iterator[Conclusion]:
    """Models that were attacked themselves, beside the MLP of the same seeds."""
    frame = worst_case_table(records)
    if frame.empty:
        return
    seen = frame["white_box"].notna() | frame["adaptive"].notna()
    frame = frame[seen & frame["above_mlp"].notna() & (frame["model"] != CONTROL)]
    if frame.empty:
        return
    best = frame.sort_values("above_mlp").iloc[-1]
    margin, seeds = best["above_mlp"], f"{best['seeds']} seed{'s' if best['seeds'] > 1 else ''}"
    yield Conclusion(
        f"Under whichever attack hurts a model most, {(frame['above_mlp'] > 0).sum()} of "
        f"{len(frame)} models stay above the MLP on {label_of('dataset', DATASET)}; the best of "
        f"them, {label_of('model', best['model'])}, has {_percent(best['worst'])}"
        f"{'' if best['bound'] else ' (no bound)'}, {abs(margin):.2f} points "
        f"{'above' if margin > 0 else 'below'} the MLP ({seeds}).",
        ("worst_cases",),
    )


def _control(records: Sequence[Record]) -> Iterator[Conclusion]:
    """The flow beside the same with a uniform modulation, seed by seed."""
    found = worst_cases(records)
    for key, own in found.items():
        other = found.get(key._replace(model=UNIFORM), {})
        change = (
            [round(a - b, 9) for a, b in pairs(own, other, "worst")] if key.model == FLOW else []
        )
        interval = mean_interval(change, LEVEL)
        if interval is None:
            continue
        low, high = interval
        order = "above" if low > 0 else "below" if high < 0 else "not told apart from"
        yield Conclusion(
            f"In its worst case {label_of('model', FLOW)} is {order} its control, the same flow "
            f"with a uniform modulation: {signed(fmean(change), 2)} points ({100 * LEVEL:.0f} % "
            f"interval {signed(low, 2)} to {signed(high, 2)}, {len(change)} seeds).",
            ("worst_cases",),
        )


def _agreement(agreeing: Agreement, verdicts: Mapping[str, Any]) -> Iterator[Conclusion]:
    compared = agreeing.within + len(agreeing.outside)
    if not compared:
        return
    claims = ", ".join(f"{len(verdicts['groups'][name])} {name}" for name in TESTED)
    yield Conclusion(
        f"{agreeing.within} of {compared} entries lie within {BAND:g} pooled standard deviations "
        f"of the printed numbers; of the paper's claims that were tested: {claims}.",
        ("misses", "claims"),
    )


def _named(models: Sequence[str]) -> str:
    return ", ".join(label_of("model", name) for name in models)


def _percent(value: float) -> str:
    return f"{value:.2f}\N{NO-BREAK SPACE}%"
