"""CPU seconds of commands that only read, in turn with `import torch`, as a Markdown table.

    python benchmarks/startup.py > benchmarks/results/startup.md

Each command runs in a new process, after a first run that compiles bytecode. On an idle machine,
CPU time equals wall time.
"""

import argparse
import os
import resource
import subprocess
import sys
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory

from measure import by_turns

from robust_diffusion.config import PUBLISHED

TORCH = "import torch"
PYG = "import torch_geometric.data"
EVALUATE = "from robust_diffusion import evaluate"
RECORDS = ("--records", str(PUBLISHED / "results" / "records.jsonl.gz"))

COMMANDS: dict[str, tuple[float, tuple[str, ...]]] = {
    "--help": (1, ()),
    "flow=haet": (1, ()),
    "data list": (1, ()),
    "cite flow=beltrami attack=auto": (1, ()),
    "table 3": (1, RECORDS),
    "claims": (2, RECORDS),
    "leaderboard": (2, RECORDS),
    "report": (4, (*RECORDS, "--out", "report.html")),
}
"""Command -> limit in seconds on an idle machine, and the options for its files."""


def run(folder: str, *words: str) -> None:
    """Run Python and ignore its exit status, since one command has a typo on purpose."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([sys.executable, *words], cwd=folder, env=environment, check=False, **streams)


def processor_time() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=5, help="runs of each (default: 5)")
    repeat = parser.parse_args().repeat
    with TemporaryDirectory() as folder:
        runs = {code: partial(run, folder, "-c", code) for code in (TORCH, PYG, EVALUATE)}
        for words, (_, files) in COMMANDS.items():
            command = ("-m", "robust_diffusion.run", *words.split(), *files)
            runs[words] = partial(run, folder, *command)
        measured = by_turns(runs, repeat=repeat, warm_up=1, clock=processor_time)
    seconds = {name: median(values) for name, values in measured.items()}
    torch = seconds[TORCH]
    targets = {words: f"{target:g} s" for words, (target, _) in COMMANDS.items()}
    targets |= {TORCH: "-", PYG: "-", EVALUATE: "2 s beyond `import torch`"}
    print("# Time to start\n")
    print(f"Medians of {repeat} runs, in processor seconds, by turns.\n")
    print("| command | seconds | in units of `import torch` | target, idle machine |")
    print("|---|---|---|---|")
    for name, value in seconds.items():
        print(f"| `{name}` | {value:.2f} | {value / torch:.2f} | {targets[name]} |")


if __name__ == "__main__":
    main()
