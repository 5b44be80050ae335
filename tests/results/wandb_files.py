"""What offline W&B runs hold, read back from their files."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WANDB = Path(sys.executable).with_name("wandb")


def inspected(path: Path, *options: str) -> str:
    command = [str(WANDB), "leet", "inspect", "--json", *options, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


class Logged:
    """What the file of a W&B run holds."""

    def __init__(self, path: Path) -> None:
        self.run = json.loads(inspected(path, "--summary"))
        self.entries = [json.loads(line) for line in inspected(path).splitlines()]
        self.curves = [r["history"]["item"] for r in self.entries if r["type"] == "history"]
        (self.about,) = [entry["run"] for entry in self.entries if entry["type"] == "run"]

    @property
    def keys(self) -> set[str]:
        """Everything that a dashboard could show, as it would name it."""
        names = {"run_group": "Group", "job_type": "JobType", "tags": "Tags"}
        return {
            *(f"summary:{key}" for key in self.run["summary"]),
            *(f"history:{key}" for point in self.curves for key in point),
            *(f"config:{key}" for key in paths(self.run["config"])),
            *(name for key, name in names.items() if self.about.get(key)),
        }


def paths(config: dict[str, Any]) -> Iterator[str]:
    """Dotted paths of everything in a nested configuration."""
    for key, value in config.items():
        yield key
        if isinstance(value, dict):
            yield from (f"{key}.{path}" for path in paths(value))
