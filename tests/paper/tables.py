"""A table with one of everything: numbers, ranks, warnings, failures, missing data, odd text."""

import os
from collections.abc import Sequence
from pathlib import Path

from robust_diffusion.paper.tables import PaperTable, build_table, load_layout
from robust_diffusion.results.frame import narrow_frame
from tests.paper.records import Record, failed, finished

ODD = 'loss <is> "not" finite | 100 % of #1 & $x_y {z} ~^\\ é'


GOLDEN = Path(__file__).with_name("golden")


def golden(name: str, text: str) -> str:
    """The text of a golden file; UPDATE_GOLDEN=1 in the environment writes it first."""
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(text, encoding="utf-8")
    return (GOLDEN / name).read_text(encoding="utf-8")


def table_of(number: int, records: Sequence[Record], **variant: str) -> PaperTable:
    """A table of the records of one scale and variant."""
    return build_table(load_layout(number), narrow_frame(records), **variant)


def everything() -> PaperTable:
    """Table 3, with five seeds of Beltrami and GRAND on Cora, and trouble elsewhere."""
    records = []
    for seed in range(5):
        records += [
            finished(0.75 + seed / 100, 0.6 + seed / 50, seed=seed),
            finished(0.74 + seed / 100, 0.5 + seed / 50, seed=seed, flow="grand"),
            failed(ODD, seed=seed, flow="heat"),
            failed("data/pubmed/x.npz: not found", "DataError", seed=seed, dataset="pubmed"),
        ]
    records[0] |= {"warnings": {"tdgia": ["adds an edge between old nodes"]}}
    records.append(finished(0.7, 0.4, flow="mean_curvature"))
    return table_of(3, records)
