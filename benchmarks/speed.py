"""Speed of training, attacks and sweeps against a straightforward form and a lower bound.

    ROBUST_DIFFUSION_DATA=... python benchmarks/speed.py            # all, writes results/
    python benchmarks/speed.py --only epoch,memory                  # a part of it
    python benchmarks/speed.py --only epoch --check                 # compare with recorded ratios

Everything runs on one thread. Programs that are compared take turns in one process, and ratios are
ratios of medians. Memory is measured in a separate process. Results go to `results/<machine>.json`
and, as a table, to `results/<machine>.md`.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import torch
from cases import CASES
from measure import machine
from tables import as_markdown, ratios

RESULTS = Path(__file__).with_name("results")

TOLERANCE = 0.75
"""Share of a recorded ratio below which a check fails; noise on a shared machine stays above it."""


def main() -> None:
    """Measure, then record or compare."""
    parser = argparse.ArgumentParser(description="Measure speed and memory.")
    parser.add_argument("--only", help=f"of {', '.join(CASES)}")
    parser.add_argument("--check", action="store_true", help="compare, record nothing")
    parser.add_argument("--repeat", type=int, default=15, help="rounds of each comparison")
    parser.add_argument("--name", help="of the machine; by default that of its processor")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else list(CASES)
    if unknown := set(chosen) - set(CASES):
        parser.error(f"--only={','.join(sorted(unknown))}: use {', '.join(CASES)}")
    torch.set_num_threads(1)
    described = machine()
    slug = re.sub(r"[^a-z0-9]+", "-", described["processor"].lower()).strip("-")
    path = RESULTS / f"{arguments.name or slug}.json"
    recorded = json.loads(path.read_text()) if path.is_file() else {}
    if arguments.check:
        measured = {name: CASES[name](arguments.repeat) for name in chosen}
        sys.exit(_compare(recorded, measured, path))
    RESULTS.mkdir(exist_ok=True)
    for name in chosen:
        print(f"{name} ...", file=sys.stderr, flush=True)
        recorded |= {"machine": described, name: CASES[name](arguments.repeat)}
        # Written after each case, so that an interrupted run keeps the finished ones.
        text = json.dumps(recorded, indent=1, sort_keys=True) + "\n"
        path.write_text(text)
        recorded = json.loads(text)  # in the order of the file
        path.with_suffix(".md").write_text(as_markdown(recorded))
    print(as_markdown(recorded))


def _compare(recorded: dict[str, Any], measured: dict[str, Any], path: Path) -> int:
    """Print each ratio with the recorded one; return 1 if any has fallen, or none is recorded."""
    before, fallen = ratios(recorded), 0
    if not before:
        print(f"{path}: no figures of this machine; `make bench` records them, --name picks others")
        return 1
    for name, ratio in ratios(measured).items():
        if name not in before:
            print(f"{name}: {ratio:.2f}x, none recorded in {path.name}")
            continue
        is_lower = ratio < TOLERANCE * before[name]
        fallen += is_lower
        print(f"{name}: {ratio:.2f}x, recorded {before[name]:.2f}x{'  LOWER' if is_lower else ''}")
    return int(fallen > 0)


if __name__ == "__main__":
    main()
