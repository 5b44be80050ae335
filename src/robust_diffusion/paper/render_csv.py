"""A paper's table in long form: one line per entry, every number."""

import pandas as pd

from robust_diffusion.paper.axes import AXES
from robust_diffusion.paper.paper_table import PaperTable


def to_frame(table: PaperTable) -> pd.DataFrame:
    """One row per entry; the same columns for every table.

    Args:
        table: The table.
    """
    rows = []
    for row, column, entry in table:
        rows.append(
            {
                "table": table.layout.number,
                "label": table.layout.label,
                "scale": table.scale,
                "fidelity": table.fidelity,
                "row": row.label,
                "column": column.label,
                **{axis: entry.line.keys.get(axis) for axis in AXES},
                "graph": entry.graph,
                "state": entry.state,
                "mean": entry.mean,
                "std": entry.std,
                "q1": entry.quartiles[0] if entry.quartiles else None,
                "q3": entry.quartiles[1] if entry.quartiles else None,
                "n": entry.n,
                "seeds": " ".join(map(str, entry.seeds)),
                "printed_mean": entry.printed.mean,
                "printed_std": entry.printed.std,
                "difference": entry.difference,
                "factor": entry.factor,
                "deviations": entry.deviations,
                "test": entry.test,
                "p": entry.p,
                "p_holm": entry.p_holm,
                "rank": entry.rank,
                "marks": "; ".join(f"{mark.kind}: {mark.text}" for mark in entry.marks),
            }
        )
    return pd.DataFrame(rows).astype({"rank": "Int64"})


def render_csv(table: PaperTable) -> str:
    """The same as text, with a header.

    Args:
        table: The table.
    """
    return to_frame(table).to_csv(index=False)
