"""The numbers behind the figures, as tables."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

STATISTICS = {
    "intra_edges": "edges within",
    "inter_edges": "between",
    "intra_mean": "mean within",
    "inter_mean": "mean between",
    "inter_share": "share between",
    "inter_preference": "preference between",
    "inter_above_intra": "P(between > within)",
    "evenness": "evenness",
}
"""Columns of the printed statistics."""

LARGEST = ("norm", "overshoot", "growth", "shift")
"""Quantities of `figure stability` whose largest value over time is printed."""


def statistics(description: Mapping[str, Any]) -> pd.DataFrame:
    """Statistics of the edges of each panel of `build_figure`, by kind of weight."""
    return pd.DataFrame(
        {"panel": panel["title"], "weight": kind}
        | {name: _text(found[key]) for key, name in STATISTICS.items()}
        for panel in description["panels"]
        for kind, found in panel["statistics"].items()
    )


def ends(description: Mapping[str, Any]) -> pd.DataFrame:
    """The last state of each flow, the most that a quantity was, and what NFE tells."""
    return pd.DataFrame(
        {
            "flow": panel["title"],
            "t": f"{panel['rows'][-1]['t']:g}",
            "energy": f"{panel['rows'][-1]['energy']:.2g}",
            **{
                f"largest {key}": f"{max(row[key] for row in panel['rows']):.3g}" for key in LARGEST
            },
            **{f"AUC {name}": f"{of['auc']:.2f}" for name, of in panel["detection"].items()},
            "NFE clean": f"{list(panel['detection'].values())[-1]['clean']:.0f}",
            "attacked": f"{list(panel['detection'].values())[-1]['attacked']:.0f}",
        }
        for panel in description["panels"]
    )


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
