"""An epoch of Beltrami under another checkout of the package and under this one, in turn.

    git worktree add ../before 3d5c5c67
    python benchmarks/turns.py ../before --case cora,released

Each checkout computes in a process of its own. Both take turns, each for a few epochs, and
processor time is measured, so that a busy machine slows both equally. Writes `results/turns.json`.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from measure import machine, summary

RESULTS = Path(__file__).with_name("results") / "turns.json"
HERE = Path(__file__).parents[1]
EPOCHS = 3
"""Number of epochs in a row."""


def serve(dataset: str, fidelity: str) -> None:
    """Train for some epochs at each line of the input, and print the seconds of one."""
    from gpu import build, views
    from networks import epoch_of

    datamodule, model = build(dataset, "beltrami", fidelity)
    epoch = epoch_of(model, *views(datamodule))
    for _ in sys.stdin:
        start = time.process_time()
        for _ in range(EPOCHS):
            epoch()
        print((time.process_time() - start) / EPOCHS, flush=True)


def in_turn(before: Path, case: list[str], rounds: int) -> dict[str, Any]:
    """Measure an epoch of both checkouts, in milliseconds of processor time."""
    command = [sys.executable, __file__, "--serve", "--case", ",".join(case)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    programs = {}
    for name, root in (("before", before), ("after", HERE)):
        path = {"PYTHONPATH": str(root.resolve() / "src"), "OMP_NUM_THREADS": "1"}
        programs[name] = subprocess.Popen(command, env=os.environ | path, **pipes)
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(rounds + 2):
        for name, program in programs.items():
            print("go", file=program.stdin, flush=True)
            line = program.stdout.readline()
            if turn >= 2:  # the first rounds look at the graph
                seconds[name].append(float(line))
    for program in programs.values():
        program.communicate()
    measured: dict[str, Any] = {name: summary(values) for name, values in seconds.items()}
    ratio = measured["after"]["median_ms"] / measured["before"]["median_ms"]
    return measured | {"after / before": ratio, "rounds": rounds}


def main() -> None:
    """Measure and record, or serve one of the two processes."""
    parser = argparse.ArgumentParser(description="Compare an epoch under two checkouts.")
    parser.add_argument("before", nargs="?", type=Path, help="folder of the other checkout")
    parser.add_argument("--case", default="cora,released", help="dataset and fidelity")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    case = arguments.case.split(",")
    if arguments.serve:
        torch.set_num_threads(1)
        serve(*case)
        return
    if arguments.before is None:
        parser.error("expected the folder of another checkout")
    recorded = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    recorded |= {
        "machine": machine(),
        arguments.case: in_turn(arguments.before, case, arguments.rounds),
    }
    RESULTS.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    print(json.dumps(recorded[arguments.case], indent=1))


if __name__ == "__main__":
    main()
