"""Rebuild rounding.md, a finished study of the accuracy that rounding alone decides.

    python experiments/rounding/rounding.py
    python experiments/rounding/rounding.py --check

`records.jsonl.gz` holds the accuracies of cells that were recorded twice with the same seeds, first
as their processor rounds and then in portable arithmetic: one line per network and test graph, of
those that cells share only one. With `--check` nothing is written; a view that is out of date is an
error.
"""

import argparse
import sys
from pathlib import Path

import pandas as pd

from robust_diffusion.results.markdown import markdown_table
from robust_diffusion.system.files import write_whole

HERE = Path(__file__).parent
VIEW = HERE / "rounding.md"
KEYS = {"dataset": "Dataset", "fidelity": "Variant", "test_graph": "Test graph"}
TOLERANCE = 1.5
"""Points of accuracy that `make reproduce` allows by default."""

TITLE = (
    "**Accuracy that rounding alone decides.** Cells recorded twice with the same seeds, in two "
    "arithmetics: their absolute difference in points of accuracy, and that of the means over "
    "seeds. A network or graph that several cells share counts once."
)


def main() -> None:
    """Write the view, or compare it with the records."""
    parser = argparse.ArgumentParser(description="Rebuild the study's table.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if out of date")
    chosen = parser.parse_args()
    text = view(pd.read_json(HERE / "records.jsonl.gz", lines=True))
    if not chosen.check:
        sys.stdout.write(f"{write_whole(VIEW, text, option='rounding:')}\n")
    elif VIEW.read_text(encoding="utf-8") != text:
        sys.exit(f"{VIEW}: differs from its records; run {Path(__file__).name}")


def view(records: pd.DataFrame) -> str:
    """The study's table in Markdown.

    Args:
        records: Accuracies in 0..1 as `first` and `second`, and what they are of.
    """
    points = records.assign(points=100 * (records["second"] - records["first"]))
    rows = [
        dict(zip(KEYS.values(), group, strict=True)) | _summary(found)
        for group, found in points.groupby(list(KEYS))
    ]
    return f"{TITLE}\n\n{markdown_table(pd.DataFrame(rows), KEYS.values())}\n"


def _summary(found: pd.DataFrame) -> dict[str, str]:
    # Accuracies are counts over nodes: without rounding, 1.5 points may be 1.5000000000000002.
    points = found["points"].abs().round(9)
    means = found.groupby("setting")["points"].mean().abs()
    return {
        "cells": str(len(points)),
        "median": f"{points.median():.2f}",
        "nine of ten": f"{points.quantile(0.9):.2f}",
        "largest": f"{points.max():.2f}",
        f"within {TOLERANCE}": f"{(points <= TOLERANCE).mean():.0%}",
        "means: median": f"{means.median():.2f}",
        "means: largest": f"{means.max():.2f}",
    }


if __name__ == "__main__":
    main()
