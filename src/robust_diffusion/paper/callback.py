"""Hydra callback that prints the paper's table at the end of an experiment of the paper."""

import sys
from collections.abc import Iterator

from omegaconf import DictConfig

from robust_diffusion.experiment.callback import PrintResults, Tagged
from robust_diffusion.paper.tables import build_table, frame_of, load_layout, to_frame
from robust_diffusion.records.record import Record
from robust_diffusion.records.records import read_records
from robust_diffusion.results.show import show


class PrintPaperTable(PrintResults):
    """Print the paper's table of an experiment, once per variant that the sweep ran."""

    def show_sweep(self, config: DictConfig, records: list[Record]) -> Iterator[Tagged]:
        """Print the table from all records, and yield it for W&B."""
        layout, choices = load_layout(config.table.number), config.hydra.runtime.choices
        frame = frame_of(layout, read_records(config.paths.records, missing_ok=True))
        scale, datasets = choices.scale, {record.dataset for record in records} or None
        # A table of budgets has no runs.
        variants = dict.fromkeys(record.fidelity for record in records) or [choices.fidelity]
        for fidelity in variants:
            variant = {"scale": scale, "fidelity": fidelity}
            table = build_table(layout, frame, **variant, datasets=datasets)
            sys.stdout.write(f"{show(table)}\n")
            yield to_frame(table), [fidelity, scale]
