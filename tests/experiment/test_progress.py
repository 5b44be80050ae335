import json
from pathlib import Path
from typing import Any

import pytest
from hydra.types import RunMode
from omegaconf import OmegaConf

from robust_diffusion.experiment.progress import DONE, PLAN, SweepProgress


@pytest.mark.parametrize(
    ("lines", "outcome"),
    [
        (['{"directory": "0", "accuracy": {}}'], b"."),
        (['{"directory": "0", "reference": true}'], b"r"),
        (['{"cut o', '{"directory": "1"}', '{"directory": "0", "error": "x"}'], b"f"),
    ],
)
def test_progress_reads_only_what_was_recorded_since_the_cell_began(
    tmp_path: Path, lines: list[str], outcome: bytes
) -> None:
    records = tmp_path / "records.jsonl"
    records.write_text('{"directory": "0", "error": "of an older sweep"}\n')
    (tmp_path / PLAN).write_text(json.dumps({"cells": 2, "start": 0}))
    config = OmegaConf.create(
        {
            "paths": {"records": str(records)},
            "hydra": {
                "mode": RunMode.MULTIRUN,
                "sweep": {"dir": str(tmp_path)},
                "runtime": {"output_dir": str(tmp_path / "0")},
            },
        }
    )
    progress: Any = SweepProgress()
    progress.on_job_start(config)
    with records.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))
    progress.on_job_end(config, None)
    assert (tmp_path / DONE).read_bytes() == outcome
