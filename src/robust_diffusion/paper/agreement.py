"""Agreement with the paper: entries within and outside the tolerance, and dataset statistics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from robust_diffusion.paper.axes import AXES, DATASETS, STAND_INS
from robust_diffusion.paper.tables import PaperTable, to_frame
from robust_diffusion.results.show import Table, show
from robust_diffusion.results.view import ROUNDING

BAND = 2.0
"""Tolerance for the difference from a printed number, in pooled standard deviations."""

INTRODUCTION = (
    f"**Agreement with the paper.** Entries whose mean lies within {BAND:g} pooled standard "
    "deviations, sqrt((s_here² + s_paper²) / 2), of the printed one. That is a band, which does "
    "not narrow with more seeds, and no test: the placebo is the share of the printed means of "
    "*other* models in the same row that lie within it. Of two samples of five from one "
    "distribution, one pair in 75 lies further apart. The last two columns count the entries "
    "within 1 and 2 points. An entry that several tables share counts in each of them, and once in "
    '"Once each".'
)

ON_STAND_INS = (
    "**With other features.** Entries on "
    + ", ".join(
        f"{DATASETS[s]}, in place of the paper's {DATASETS[d]}" for d, s in STAND_INS.items()
    )
    + ": same graph, labels and split. They are not among the counts above."
)

PAPER_ORDER = ("cora", "citeseer", "pubmed", "coauthor", "flickr", "amazon_computer")

POINTS = (1, 2)
"""Distances, in points, within which entries are counted."""

SHARED = ["cells", "graph", "printed_mean"]
"""Columns that identify an entry which several tables share."""


@dataclass(frozen=True)
class Agreement:
    """Comparison of the entries of tables with the published numbers."""

    entries: pd.DataFrame  # compared ones, with the columns of `to_frame`, and `within` the band
    undecided: int  # entries of one seed, or without a published deviation
    placebo: "pd.Series[bool]"  # per entry and other model in its row: printed mean in the band

    @property
    def outside(self) -> Table:
        """Entries outside the tolerance, the furthest first."""
        entries = self.entries[~self.entries["within"]]
        entries = entries.sort_values("deviations", key=lambda column: -column.abs(), kind="stable")
        columns = {
            "Table": entries["table"].astype(str),
            "Entry": entries["row"] + ", " + entries["column"],
            "Here": entries["mean"],
            "Here ±": entries["std"],
            "Paper": entries["printed_mean"],
            "Paper ±": entries["printed_std"],
            "Difference": entries["difference"],
            "In pooled sd": entries["deviations"],
        }
        formats = {"Difference": "{:+.2f}", "In pooled sd": "{:+.1f}"}
        return Table("", pd.DataFrame(columns).reset_index(drop=True), formats=formats)


def agreement(tables: Sequence[PaperTable], *, stand_ins: bool = False) -> Agreement:
    """Compare the tables of one variant, at least one, with the paper, entry by entry.

    Args:
        tables: Of one variant.
        stand_ins: Compare the entries on stand-ins, instead of those on the paper's features.
    """
    frames = [
        to_frame(table).assign(
            place=place,
            cells=[" ".join(table.rows.loc[index, "run"]) for index in table.cells["index"]],
        )
        for place, table in enumerate(tables)
        if table.layout.kind != "budgets"
    ]
    entries = pd.concat(frames, ignore_index=True)
    entries = entries[entries["dataset"].isin(STAND_INS.values()) == stand_ins]
    compared = entries[entries["difference"].notna()]
    decided = compared[compared["deviations"].notna()].astype({"deviations": float, "std": float})
    decided = decided.assign(within=decided["deviations"].abs() <= BAND)
    row = ["place", *(axis for axis in AXES if axis != "model")]
    printed = entries[entries["printed_mean"].notna()][[*row, "model", "printed_mean"]]
    others = decided.merge(printed, on=row, suffixes=("", "_of_other"))
    others = others[others["model"] != others["model_of_other"]]
    pooled = ((others["std"] ** 2 + others["printed_std"].astype(float) ** 2) / 2) ** 0.5
    distance = (others["mean"] - others["printed_mean_of_other"]).abs()
    placebo = distance <= BAND * pooled.clip(lower=ROUNDING)
    return Agreement(decided, len(compared) - len(decided), placebo)


def render_agreement(variants: Mapping[str, Sequence[PaperTable]]) -> str:
    """Render counts per variant and table, and every entry outside the tolerance, as Markdown.

    Entries on stand-ins are a block of their own.
    """
    own = {name: agreement(tables) for name, tables in variants.items()}
    text = _render_block(INTRODUCTION, own)
    others = {name: agreement(tables, stand_ins=True) for name, tables in variants.items()}
    if any(len(comparison.entries) for comparison in others.values()):
        text += f"\n{_render_block(ON_STAND_INS, others)}"
    return text


def _render_block(introduction: str, by_variant: Mapping[str, Agreement]) -> str:
    numbers = sorted({n for of in by_variant.values() for n in of.entries["table"]})
    counts = [{"Variant": name} | _counts(of, numbers) for name, of in by_variant.items()]
    cells = pd.DataFrame(counts)
    cells = cells.astype(dict.fromkeys(cells.columns.drop(["Variant", "Placebo"]), "Int64"))
    blocks = [show(Table("", cells, introduction, formats={"Placebo": "{:.1f} %"}))]
    for name, comparison in by_variant.items():
        outside = comparison.outside
        if len(outside.cells):
            by_table = outside.cells.sort_values("Table", key=lambda n: n.map(int), kind="stable")
            caption = f"fidelity={name}, outside the tolerance:"
            blocks.append(show(replace(outside, cells=by_table, caption=caption)))
        if comparison.undecided:
            alone = f"{comparison.undecided} more have one seed or no published deviation"
            blocks.append(f"fidelity={name}: {alone}.\n")
    return "\n".join(blocks)


def published_beside_measured(data_dir: str | Path) -> pd.DataFrame:
    """Return the published and the measured value of each statistic of each dataset.

    `equal` is yes or no, or documented if `printed.in_files` of `conf/dataset/` holds the measured
    value.
    """
    # Imported late, since graphs take seconds to import.
    from robust_diffusion.data.inventory import Statistics, compose_dataset, measure_graph

    rows = []
    for name in PAPER_ORDER:
        published = compose_dataset(name, data_dir).dataset.printed
        measured = measure_graph(name, data_dir)
        for column in ("nodes", "edges", "features", "classes", "feature_range"):
            row = {"dataset": name, "statistic": column, "published": _text(published[column])}
            text = _text(getattr(measured, column)) if isinstance(measured, Statistics) else None
            equal = "-" if text is None else "yes" if text == row["published"] else "no"
            if equal == "no" and text == str(published.get("in_files", {}).get(column)):
                equal = "documented"
            rows.append(row | {"measured": text or "no data", "equal": equal})
    return pd.DataFrame(rows)


def _text(value: int | Sequence[float]) -> str:
    return str(value) if isinstance(value, int) else " .. ".join(f"{v:.2f}" for v in value)


def _counts(variant: Agreement, numbers: Sequence[int]) -> dict[str, Any]:
    """Count the entries within the tolerance, and within some points."""
    entries = variant.entries
    shares = {f"Table {number}": entries[entries["table"] == number] for number in numbers}
    shares |= {"All": entries, "Once each": entries.drop_duplicates(SHARED, keep="last")}
    counts: dict[str, Any] = {}
    for name, rows in shares.items():
        counts[name] = int(rows["within"].sum()) if len(rows) else None
        counts[f"{name} of"] = len(rows) or None
    counts["Placebo"] = 100 * variant.placebo.mean()
    for n in POINTS:
        counts[f"{n} point{'s' * (n > 1)}"] = int((entries["difference"].abs() <= n).sum())
    return counts
