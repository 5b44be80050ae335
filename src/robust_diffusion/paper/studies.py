"""Experiments beside the paper's tables, each shown as one table: settings, worst cases, pairs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from robust_diffusion.records.records import Record, latest_by_cell
from robust_diffusion.results.budget_curve import show_budgets
from robust_diffusion.results.comparison import compare, describe_comparison
from robust_diffusion.results.effects import show_effects
from robust_diffusion.results.paired import compare_worst_cases
from robust_diffusion.results.table import ResultTable, rank, summarize
from robust_diffusion.results.targets import show_targets
from robust_diffusion.results.worst_case import recorded_on, show_worst_cases

WORST_CASES = (
    *("worst-case", "worst-case-models", "worst-case-splits", "worst-case-graphs"),
    *("heterophily", "worst-case-modification", "single-attacks", "successors", "adversarial"),
)

SHOWN: Mapping[str, Callable[[Sequence[Record]], ResultTable]] = {
    "tune": rank,
    "mlp": summarize,
    "grand-rate": rank,
    **dict.fromkeys(WORST_CASES, show_worst_cases),
    "budget-curve": show_budgets,
    "poisoning": summarize,
    "switches": show_effects,
    "targets": show_targets,
}
"""Experiments whose settings are listed: on validation nodes, on test graphs, by worst case."""

PAIRED = {
    "beltrami-uniform": ("worst-case", "beltrami", "uniform_modulation"),
    "adversarial-beltrami": ("adversarial", "beltrami, adversary", "beltrami"),
    "adversarial-grand": ("adversarial", "grand, adversary", "grand"),
    "adversarial-learned": ("adversarial", "learned, adversary", "learned"),
    "adversarial-learned-mlp": ("adversarial", "learned, adversary", "mlp"),
}
"""Views of two models, seed by seed: the experiment, the model or flow, and its control."""

ON_TEST = (
    *("readings", "t-end", "seeds", "pgd-steps", "gcn-svd", "graph-sage"),
    *("edge-ids", "splits", "degree-leak", "tdgia-limits", "guard-gradient"),
)

COMPARED = dict.fromkeys(ON_TEST, "test") | {"tune-check": "validation"}
"""Experiments whose settings are compared with each other, and the nodes they are compared on."""


def studies(
    records: Sequence[Record], *, scale: str = "full", own: bool = False
) -> Iterator[tuple[str, ResultTable]]:
    """Name and table of each of these experiments of which there are records of that scale.

    With `own` also the user's own experiments, by accuracy on the test graphs.
    """
    records = [record for record in records if record.get("scale", "full") == scale]
    for name, on in COMPARED.items():
        frame = compare(records, name, scale=scale, on=on)
        if not frame.empty:
            title = f"**experiment={name}.** {describe_comparison(frame, on=on)}"
            yield name, ResultTable(title, frame, ["setting"], [])
    asked = _asked(records)
    shown = {name: show for name, show in SHOWN.items() if name in asked}
    if own:
        others = asked.keys() - SHOWN.keys() - COMPARED.keys()
        shown |= {name: summarize for name in sorted(others) if not name.startswith("table-")}
    for name, show in shown.items():
        # Apart from `auto`, whose worst cases have a page of their own.
        together = name in WORST_CASES and name != "single-attacks"
        table = show(recorded_on(records, {name}) if together else asked[name])
        yield name, replace(table, title=f"**experiment={name}.** {table.title}.")
    for name, (experiment, *models) in PAIRED.items():
        table = compare_worst_cases(recorded_on(records, {experiment}), *models)
        if not table.cells.empty:
            yield name, replace(table, title=f"**experiment={experiment}.** {table.title}.")


def _asked(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records by experiment, with the overrides by which it asked for them."""
    latest = latest_by_cell(records)
    asked: dict[str, dict[str, Record]] = {}
    for line in records:
        cell = line.get("cell")
        if cell in latest:
            # Another experiment may have run a cell first, with overrides of its own.
            own = {"overrides": line.get("overrides", {})}
            asked.setdefault(line["experiment"], {})[cell] = latest[cell] | own
    return {name: list(cells.values()) for name, cells in asked.items()}
