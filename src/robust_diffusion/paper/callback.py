"""Hydra callback that ends an experiment of the paper with the paper's table."""

import sys
from collections.abc import Iterator
from itertools import product

import pandas as pd
from omegaconf import DictConfig

from robust_diffusion.cells.callback import PrintResults
from robust_diffusion.cells.loggers import chosen_mode, log_table
from robust_diffusion.paper.layout import load_layout, table_numbers
from robust_diffusion.paper.paper_table import build_table
from robust_diffusion.paper.render import render_markdown, to_frame
from robust_diffusion.records.records import Record, read_records
from robust_diffusion.results.cells import RecordSet


class PrintPaperTable(PrintResults):
    """The paper's table of an experiment, once per variant that the sweep ran."""

    def show_sweep(self, config: DictConfig, records: list[Record]) -> None:
        """Print the table from all records, and log it where W&B is asked for."""
        layout, every = load_layout(config.table.number), read_records(config.paths.records)
        scale = config.hydra.runtime.choices.scale
        typed = any(of.startswith("dataset=") for of in config.hydra.overrides.task)
        datasets = {record["dataset"] for record in records} if typed else None
        for fidelity in dict.fromkeys(record["fidelity"] for record in records):
            counted = RecordSet.of(every, scale=scale, fidelity=fidelity)
            table = build_table(layout, counted, datasets)
            sys.stdout.write(render_markdown(table))
            wandb = (config.logger or {}).get("wandb")
            if wandb and chosen_mode(wandb.mode) != "disabled":
                log_table(
                    to_frame(table),
                    project=wandb.project,
                    experiment=layout.experiment,
                    directory=config.hydra.sweep.dir,
                    mode=wandb.mode,
                    tags=[fidelity, scale],
                )

    def tables(
        self, experiment: str, records: list[Record], scale: str
    ) -> Iterator[tuple[pd.DataFrame, list[str]]]:
        """The paper's table, once per variant that is in the records."""
        cells = RecordSet.of(records, scale=scale).cells(experiment)
        layouts = [of for of in map(load_layout, table_numbers()) if of.experiment == experiment]
        fidelities = sorted({record["fidelity"] for record in cells})
        for layout, fidelity in product(layouts, fidelities):
            table = build_table(layout, RecordSet.of(records, scale=scale, fidelity=fidelity))
            yield to_frame(table), [fidelity, scale]
