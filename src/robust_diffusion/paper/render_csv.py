"""A paper's table in long form: one line per entry, every number."""

import pandas as pd

from robust_diffusion.paper.axes import AXES
from robust_diffusion.paper.paper_table import PaperTable

AS_THEY_ARE = ("difference", "factor", "deviations", "p", "p_holm", "test", "rank")
"""Attributes of an entry that are columns of the same name."""


def to_frame(table: PaperTable) -> pd.DataFrame:
    """One row per entry; the same columns for every table."""
    common = {
        "table": table.layout.number,
        "label": table.layout.label,
        "scale": table.scale,
        "fidelity": table.fidelity,
    }
    rows = []
    for row, column, entry in table:
        q1, q3 = entry.quartiles or (None, None)
        rows.append(
            {
                **common,
                "row": row.label,
                "column": column.label,
                **dict.fromkeys(AXES),
                **entry.keys,
                "graph": entry.graph,
                "state": entry.state,
                "mean": entry.mean,
                "std": entry.std,
                "q1": q1,
                "q3": q3,
                "n": entry.n,
                "seeds": " ".join(map(str, entry.seeds)),
                "values": " ".join(str(run.value) for run in entry.runs),
                "printed_mean": entry.reported.mean,
                "printed_std": entry.reported.std,
                **{name: getattr(entry, name) for name in AS_THEY_ARE},
                "marks": "; ".join(f"{mark.kind}: {mark.text}" for mark in entry.marks),
            }
        )
    return pd.DataFrame(rows).astype({"rank": "Int64"})


def render_csv(table: PaperTable) -> str:
    """The same as text, with a header."""
    return to_frame(table).to_csv(index=False)
