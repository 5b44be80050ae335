"""Experiments outside the paper's tables, each shown as one table: settings, worst cases, pairs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from robust_diffusion.records.records import Record, by_experiment, first_asked
from robust_diffusion.results.budget_curve import show_budgets
from robust_diffusion.results.comparison import compare, describe_comparison
from robust_diffusion.results.effects import show_effects
from robust_diffusion.results.paired import compare_worst_cases
from robust_diffusion.results.table import ResultTable, rank, summarize
from robust_diffusion.results.worst_case import recorded_on, show_targets, show_worst_cases

_WORST_CASES = (
    *("worst-case", "worst-case-models", "worst-case-splits", "worst-case-graphs"),
    *("heterophily", "worst-case-modification", "single-attacks", "successors", "adversarial"),
)

STUDIES: Mapping[str, Callable[[Sequence[Record]], ResultTable]] = {
    "tune": rank,
    "mlp": summarize,
    "grand-rate": rank,
    **dict.fromkeys(_WORST_CASES, show_worst_cases),
    "budget-curve": show_budgets,
    "poisoning": summarize,
    "switches": show_effects,
    "targets": show_targets,
}
"""Experiments whose settings are listed: on validation nodes, on test graphs, by worst case."""

_PAIRED = {
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
    records: Sequence[Record], *, scale: str = "full", custom: bool = False
) -> Iterator[tuple[str, ResultTable]]:
    """Name and table of each of these experiments of which there are records of that scale.

    With `custom`, also the user's own experiments, by accuracy on the test graphs.
    """
    asked = by_experiment(records, scale=scale)
    for name, on in COMPARED.items():
        frame = compare(asked.get(name, []), on=on)
        if not frame.empty:
            title = f"**experiment={name}.** {describe_comparison(frame, on=on)}"
            yield name, ResultTable(title, frame, ["setting"], [])
    shown = {name: show for name, show in STUDIES.items() if name in asked}
    if custom:
        others = asked.keys() - STUDIES.keys() - COMPARED.keys()
        shown |= {name: summarize for name in sorted(others) if not name.startswith("table-")}
    for name, show in shown.items():
        # Apart from `auto`, whose worst cases have a page of their own.
        together = name in _WORST_CASES and name != "single-attacks"
        table = show(recorded_on(asked, {name}) if together else first_asked(asked[name]))
        yield name, replace(table, title=f"**experiment={name}.** {table.title}.")
    for name, (experiment, *models) in _PAIRED.items():
        table = compare_worst_cases(recorded_on(asked, {experiment}), *models)
        if not table.cells.empty:
            yield name, replace(table, title=f"**experiment={experiment}.** {table.title}.")
