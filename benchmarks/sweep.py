"""Seconds of a sweep over seeds on Cora, sequential and in two parallel processes."""

import json
import subprocess
import sys
import tempfile
import time

EPOCHS = 50


def main() -> None:
    """Time both, and print one line of JSON."""
    count = int(sys.argv[1])
    both = {
        "one after the other": [],
        "two processes": ["hydra/launcher=cores", "hydra.launcher.n_jobs=2"],
    }
    print(json.dumps({name: _seconds(count, launcher) for name, launcher in both.items()}))


def _seconds(count: int, launcher: list[str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run(
            [
                *(sys.executable, "-m", "robust_diffusion.run", "-m", "dataset=cora"),
                *(f"seed=range({count})", f"training.max_epochs={EPOCHS}", "logger=none"),
                *(f"paths.outputs={folder}", *launcher),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return time.perf_counter() - start


if __name__ == "__main__":
    main()
