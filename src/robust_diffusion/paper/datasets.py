"""Table (data): the published statistics of each dataset beside the measured ones."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from robust_diffusion.data.inventory import Statistics, compose_dataset, measure

PAPER_ORDER = ("cora", "citeseer", "pubmed", "coauthor", "flickr", "amazon_computer")


def published_beside_measured(data_dir: str | Path) -> pd.DataFrame:
    """Published and measured value of each statistic of each dataset."""
    rows = []
    for name in PAPER_ORDER:
        published = compose_dataset(name, data_dir).dataset.printed
        measured = measure(name, data_dir)
        for column in ("nodes", "edges", "features", "classes", "feature_range"):
            row = {"dataset": name, "statistic": column, "published": _text(published[column])}
            if isinstance(measured, Statistics):
                row["measured"] = _text(getattr(measured, column))
                row["equal"] = "yes" if row["measured"] == row["published"] else "no"
            else:
                row |= {"measured": "no data", "equal": "-"}
            rows.append(row)
    return pd.DataFrame(rows)


def _text(value: int | Sequence[float]) -> str:
    return str(value) if isinstance(value, int) else " .. ".join(f"{v:.2f}" for v in value)
