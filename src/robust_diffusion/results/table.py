"""Table of finished text, which the leaderboard returns."""

from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class ResultTable:
    """Text with a title and notes."""

    title: str
    cells: pd.DataFrame
    keys: list[str]
    notes: list[str]
