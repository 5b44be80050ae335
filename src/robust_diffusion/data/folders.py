"""Datasets by name, and the state of their files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf

from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.data.download import DatasetFolder, FileStatus


def dataset_names() -> list[str]:
    """List every `dataset=` option except `custom`, which has no files until a path is set."""
    return sorted({path.stem for path in (CONFIG_DIR / "dataset").glob("*.yaml")} - {"custom"})


def list_datasets(data_dir: str | Path) -> pd.DataFrame:
    """Tabulate the datasets and how many of their files exist; only hashes are read."""
    rows = []
    for name, places, files in folders(data_dir):
        states = [file.state for file in files]
        missing, damaged = states.count("missing"), states.count("damaged")
        state = "missing" if missing else "present" if places else "built in"
        if damaged or 0 < missing < len(states):
            kind, count = ("damaged", damaged) if damaged else ("missing", missing)
            state = f"{count} of {len(states)} files {kind}"
        shown = ", ".join(str(place.folder) for place in places) or "-"
        rows.append({"dataset": name, "state": state, "folder": shown})
    return pd.DataFrame(rows)


def verify_files(data_dir: str | Path) -> pd.DataFrame:
    """Tabulate the state and hash of each file, and its damage or where to get it."""
    return pd.DataFrame(
        {
            "dataset": name,
            "file": file.path.name,
            "state": file.state,
            "sha256": file.sha256 or "-",
            "detail": file.detail,
        }
        for name, _, files in folders(data_dir)
        for file in files
    )


def folders(
    data_dir: str | Path,
) -> Iterator[tuple[str, list[DatasetFolder], list[FileStatus]]]:
    """Yield name, folders and files of each dataset."""
    for name in dataset_names():
        # Without Hydra, which takes half a second per dataset.
        option = OmegaConf.load(CONFIG_DIR / "dataset" / f"{name}.yaml")
        config = {"dataset": option, "paths": {"data_dir": str(data_dir)}, "download": False}
        source = OmegaConf.create(config).dataset.source
        parts: Any = OmegaConf.to_container(source, resolve=True)
        places = [
            DatasetFolder(**{key: value for key, value in part.items() if key != "_target_"})
            for part in parts.values()
            if isinstance(part, dict) and part.get("_target_", "").endswith(".DatasetFolder")
        ]
        yield name, places, [file for place in places for file in place.status()]
