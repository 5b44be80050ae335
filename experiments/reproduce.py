"""Repeat published runs, and compare their accuracies with the recorded ones.

    python experiments/reproduce.py --runs 3
    python experiments/reproduce.py 505a72dc82ff1559

Runs are drawn from the records, or named by their ids. Everything is computed from scratch in a
temporary folder. The accuracies are the same on the machine that recorded a run, and on any machine
if the run was recorded with `make ... PORTABLE=1`.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from robust_diffusion.commands.reading import read_chosen
from robust_diffusion.config import PUBLISHED_RECORDS
from robust_diffusion.errors import DataError
from robust_diffusion.records import Record, read_records
from robust_diffusion.system.portable import PORTABLE, named_in

IGNORED = ("logger", "hydra", "threads")
"""Top-level keys of the overrides that do not change a result."""


def main() -> None:
    """Reproduce runs; exit with 1 if one differs by more than the tolerance."""
    parser = _parser()
    chosen = parser.parse_args()
    if chosen.runs < 1:
        parser.error(f"--runs {chosen.runs}: draw at least one")
    try:
        latest = {record.run: record for record in read_chosen([chosen.records])}
    except DataError as error:
        sys.exit(str(error))
    tested = {run: record for run, record in latest.items() if record.is_tested}
    for run in chosen.ids:
        if run not in tested:
            what = "has no accuracy" if run in latest else "not one of the runs"
            sys.exit(f"{run}: {what} in {chosen.records}; name another one")
    if not tested:
        sys.exit(f"{chosen.records}: no run with an accuracy; name other records")
    drawn = random.Random(chosen.seed).sample(sorted(tested), min(chosen.runs, len(tested)))  # noqa: S311
    outside: dict[str, list[str]] = {}
    for run in chosen.ids or drawn:
        if (reason := _reproduce(tested[run], chosen.tolerance)) is not None:
            outside.setdefault(reason, []).append(run)
    if outside:
        sys.exit("; ".join(f"{len(ids)} {why}: {', '.join(ids)}" for why, ids in outside.items()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Repeat published runs and compare.")
    parser.add_argument("ids", nargs="*", metavar="run", help="ids of runs (default: drawn)")
    parser.add_argument("--runs", type=int, default=3, help="how many to draw (default: 3)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default: 0)")
    parser.add_argument(
        "--records", type=Path, default=PUBLISHED_RECORDS, help="default: the published ones"
    )
    parser.add_argument(
        "--tolerance", type=float, default=1.5, help="in points of accuracy (default: 1.5)"
    )
    return parser


def _reproduce(record: Record, tolerance: float) -> str | None:
    """Repeat a run and print a comparison; return the reason if it is not reproduced."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = Path(folder)
        found = _run(record, outputs)
    name = f"{record.run} ({record.experiment}, {record.dataset}, "
    network = record.flow if record.model == "graph_pde" else record.model
    name += f"{network}, {record.fidelity}, seed {record.seed})"
    if found is None or found.error:
        sys.stdout.write(f"{name}: {found.error if found else 'left no record'}\n")
        return "did not run"
    if found.run != record.run:
        sys.stdout.write(f"{name}: its options are other ones today, which give another run\n")
        return "of other options today"
    differences = {
        graph: 100 * (found.accuracy[graph] - accuracy)
        for graph, accuracy in record.accuracy.items()
    }
    # Another version of an attack makes another graph, so its accuracy is shown but not compared.
    before, now = (of.attack_versions for of in (record, found))
    other = {graph for graph in now if now[graph] != before.get(graph)}
    compared = {graph: value for graph, value in differences.items() if graph not in other}
    exact = not any(compared.values())
    parts = ["the same accuracies"] if exact else [f"{k} {v:+.2f}" for k, v in compared.items()]
    parts += [
        f"{graph} {differences[graph]:+.2f} by version {now[graph]}, recorded by {before[graph]}"
        for graph in sorted(other & before.keys())
    ]
    sys.stdout.write(f"{name}: {', '.join(parts)}{'' if exact else _elsewhere(record, found)}\n")
    within = all(abs(value) <= tolerance for value in compared.values())
    return None if within else f"further than {tolerance:g} points away"


def _elsewhere(record: Record, found: Record) -> str:
    """Name the processors of the record and of this machine if they differ."""
    before, now = (of.processor or "one that is not recorded" for of in (record, found))
    return "" if before == now else f"; recorded on {before}, now on {now}"


def _run(record: Record, outputs: Path) -> Record | None:
    command, env = _command(record, outputs), _environment(record)
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, env=env)  # noqa: S603
    return next(iter(read_records(outputs / "records", missing_ok=True)), None)


def _environment(record: Record) -> dict[str, str]:
    """Return the environment for the arithmetic that the record names after its processor."""
    others = {key: value for key, value in os.environ.items() if key not in PORTABLE}
    return others | named_in(record.processor or "")


def _command(record: Record, outputs: Path) -> list[str]:
    overrides = {
        key: value
        for key, value in record.overrides.items()
        if key.split(".")[0].split("/")[0] not in IGNORED
    }
    # A variant may use a graph's edge numbers today, although it used ones in the record.
    values = record.config.data.get("edge_values", "ones")
    overrides.setdefault("fidelity.edge_values", values)
    threat = record.config.threat
    # The default was once the victim's random state; a run without attacks does not read it.
    if threat.get("surrogates") and record.config.attacks:
        by_name = threat.get("seeding") == "name"
        overrides.setdefault("threat.seeding", "name" if by_name else "run")
    # Only this run, not the sweep of its experiment.
    overrides |= {"hydra.mode": "RUN", "logger": "none", "paths.outputs": str(outputs)}
    overrides["threads"] = str(record.config.whole["threads"])
    if record.backend:  # backends round differently
        overrides["backend"] = record.backend
    # Records drop the + of an added key; a group's key has a / or an @.
    plain = {key for key in record.overrides if "." in key and not {"/", "@"} & {*key}}
    arguments = [f"{'++' * (key in plain)}{key}={value}" for key, value in overrides.items()]
    return [sys.executable, "-m", "robust_diffusion.run", *arguments]


if __name__ == "__main__":
    main()
