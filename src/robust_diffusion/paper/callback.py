"""Hydra callback that prints the paper's table at the end of an experiment of the paper."""

import sys
from collections.abc import Iterator

from omegaconf import DictConfig

from robust_diffusion.experiment.callback import PrintResults, Tagged
from robust_diffusion.paper.layout import load_layout
from robust_diffusion.paper.paper_table import build_table
from robust_diffusion.paper.render import render_markdown, to_frame
from robust_diffusion.records.records import Record, read_records
from robust_diffusion.results.runs import Runs


class PrintPaperTable(PrintResults):
    """Print the paper's table of an experiment, once per variant that the sweep ran."""

    def show_sweep(self, config: DictConfig, records: list[Record]) -> Iterator[Tagged]:
        """Print the table from all records, and yield it for W&B."""
        layout, every = load_layout(config.table.number), read_records(config.paths.records)
        scale = config.hydra.runtime.choices.scale
        datasets = {record["dataset"] for record in records}
        for fidelity in dict.fromkeys(record["fidelity"] for record in records):
            counted = Runs(every, scale=scale, fidelity=fidelity)
            table = build_table(layout, counted, datasets)
            sys.stdout.write(f"{render_markdown(table)}\n")
            yield to_frame(table), [fidelity, scale]
