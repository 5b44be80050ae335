"""Run published cells again, and compare their accuracies with those that were recorded.

    python experiments/reproduce.py --cells 3
    python experiments/reproduce.py 8b206c3fe1a68c82

Cells are drawn from the records, or named by their ids. Everything is computed anew in a folder of
its own. On the machine that recorded a cell it comes out bit for bit; on another one rounding
differs.
"""

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from robust_diffusion.evaluation.records import (
    Record,
    finished_record,
    latest_by_cell,
    read_records,
)

RECORDS = Path(__file__).with_name("results") / "records.jsonl"
PASSED_OVER = ("logger", "hydra", "threads")
"""Parts of an override that do not shape a result."""


def main() -> None:
    """Reproduce cells; the exit status is 1 if one is further away than the tolerance."""
    chosen = _parser().parse_args()
    recorded = {c: r for c, r in latest_by_cell(read_records(chosen.records)).items() if _has(r)}
    if unknown := sorted(set(chosen.ids) - recorded.keys()):
        sys.exit(f"{unknown[0]}: not a cell of {chosen.records}; name one of its cells")
    drawn = random.Random(chosen.seed).sample(sorted(recorded), min(chosen.cells, len(recorded)))  # noqa: S311
    far = [cell for cell in chosen.ids or drawn if not _reproduces(recorded[cell], chosen)]
    if far:
        sys.exit(f"{len(far)} further than {chosen.tolerance:g} points away: {', '.join(far)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Run published cells again and compare.")
    parser.add_argument("ids", nargs="*", metavar="cell", help="ids of cells (default: drawn)")
    parser.add_argument("--cells", type=int, default=3, help="how many to draw (default: 3)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default: 0)")
    parser.add_argument("--records", type=Path, default=RECORDS, help="default: the published ones")
    parser.add_argument(
        "--tolerance", type=float, default=1.5, help="in points of accuracy (default: 1.5)"
    )
    return parser


def _has(record: Record) -> bool:
    return "accuracy" in record


def _reproduces(record: Record, chosen: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        outputs = Path(folder)
        found = _run(record, outputs)
    name = f"{record['cell']} ({record['experiment']}, {record['dataset']}, "
    name += f"{record['flow'] or record['model']}, {record['fidelity']}, seed {record['seed']})"
    if found is None:
        sys.stdout.write(f"{name}: did not run\n")
        return False
    differences = {
        graph: 100 * (found["accuracy"][graph] - accuracy)
        for graph, accuracy in record["accuracy"].items()
    }
    exact = found["accuracy"] == record["accuracy"]
    told = ", ".join(f"{graph} {value:+.2f}" for graph, value in differences.items())
    sys.stdout.write(f"{name}: {'bit for bit' if exact else told}\n")
    return max(map(abs, differences.values())) <= chosen.tolerance


def _run(record: Record, outputs: Path) -> Record | None:
    overrides = [
        f"{key}={value}"
        for key, value in record["overrides"].items()
        if key.split(".")[0].split("/")[0] not in PASSED_OVER
    ]
    command = [sys.executable, "-m", "robust_diffusion.run", "-m", *overrides]
    command += ["logger=none", f"paths.outputs={outputs}", f"threads={record['config']['threads']}"]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)  # noqa: S603
    return finished_record(outputs / "records.jsonl", record["cell"])


if __name__ == "__main__":
    main()
