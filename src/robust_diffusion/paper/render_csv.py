"""A paper's table in long form: one line per entry, every number."""

import pandas as pd

from robust_diffusion.paper.axes import AXES
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.wording import fields


def to_frame(table: PaperTable) -> pd.DataFrame:
    """One row per entry; the same columns for every table."""
    common = {
        "table": table.layout.number,
        "label": table.layout.label,
        "scale": table.scale,
        "fidelity": table.fidelity,
    }
    columns = [*common, "row", "column", *AXES]
    rows = [
        {
            **dict.fromkeys(columns),
            **common,
            **fields(row, column, entry),
            "marks": "; ".join(f"{mark.kind}: {mark.text}" for mark in entry.marks),
        }
        for row, column, entry in table
    ]
    return pd.DataFrame(rows).astype({"rank": "Int64"})


def render_csv(table: PaperTable) -> str:
    """The same as text, with a header."""
    return to_frame(table).to_csv(index=False)
