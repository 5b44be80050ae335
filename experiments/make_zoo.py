"""Build the model zoo from records and their store, or check the existing zoo.

    python experiments/make_zoo.py --records outputs/records --store outputs/store
    python experiments/make_zoo.py --check

For each model under white-box `auto`, the zoo takes the lowest seed whose weights and strongest
perturbed graph are in the store. Entries of other models stay as they are, and so does a graph that
does more harm to the same weights, whichever version of the attack found it. Every model is
evaluated before it is written, and rejected unless its accuracies are exactly those of its record.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import torch
from torch import nn
from torch_geometric.data import Data

from robust_diffusion.attacks import PerturbedGraph
from robust_diffusion.attacks.audit import read_perturbed
from robust_diffusion.commands.reading import read_chosen
from robust_diffusion.config import PUBLISHED, PUBLISHED_RECORDS
from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.inventory import open_dataset
from robust_diffusion.errors import ConfigError, DataError, RobustDiffusionError
from robust_diffusion.evaluation.evaluate_model import probed
from robust_diffusion.evaluation.load import load_weights
from robust_diffusion.evaluation.zoo import (
    INDEX,
    Zoo,
    ZooEntry,
    build_recorded,
    write_index,
)
from robust_diffusion.records import Record
from robust_diffusion.records.submission import Submission
from robust_diffusion.results.evidence import KIND, SEEN, attack_in_words
from robust_diffusion.results.frame import narrow_frame
from robust_diffusion.results.leaderboard import thorough_runs
from robust_diffusion.results.show import Table, show
from robust_diffusion.system.arithmetic import set_up_arithmetic
from robust_diffusion.system.artifact import Artifact, read_artifact, write_artifact
from robust_diffusion.system.files import write_whole
from robust_diffusion.system.hashes import file_hash
from robust_diffusion.system.tensor_hashes import state_hash, tensor_hash

ZOO = PUBLISHED / "zoo"

EXPERIMENTS = frozenset(["worst-case", "worst-case-models"])
"""Experiments whose models are taken."""

LARGEST = 15_000_000
"""Limit on the total size of a zoo's files, in bytes."""


@dataclass(frozen=True)
class Made:
    """An entry and the content of its files."""

    entry: ZooEntry
    weights: Artifact
    graph: Artifact


def main() -> None:
    """Build the zoo, or check it; exit with 1 if a model does not match its record."""
    parser = _parser()
    chosen = parser.parse_args()
    if not chosen.check and chosen.store is None:
        parser.error("--store: name the folder of the run's models and graphs")
    torch.set_num_threads(1)  # as in every run
    try:
        set_up_arithmetic()
        records = read_chosen(chosen.records or [PUBLISHED_RECORDS], required=True)
        if chosen.check:
            sys.exit(0 if check_zoo(Zoo.open(chosen.zoo), records) else 1)
        made = list(zoo_of(records, chosen.store))
        for path in write_zoo(made, chosen.zoo):
            sys.stdout.write(f"{path}\n")
    except RobustDiffusionError as error:
        sys.exit(f"error: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Make the model zoo, or check it.")
    parser.add_argument(
        "--records",
        action="append",
        type=Path,
        metavar="PATH",
        help="records of the run (default: the published ones)",
    )
    parser.add_argument("--store", type=Path, metavar="FOLDER", help="its models and graphs")
    zoo = Path(os.environ.get("ROBUST_DIFFUSION_ZOO") or ZOO)
    parser.add_argument(
        "--zoo", type=Path, default=zoo, metavar="FOLDER", help="default: experiments/zoo"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; evaluate each model anew"
    )
    return parser


def zoo_of(records: Sequence[Record], store: Path) -> Iterator[Made]:
    """Yield the zoo's entries from records and their store.

    Args:
        records: Records of runs, including any that the zoo does not use.
        store: Folder of the models and graphs of these runs.

    Raises:
        DataError: A dataset or an entry of the store is missing or damaged, or a model does not
            have the accuracies of its record.
    """
    for (dataset, variant, name), seeds in sorted(_attacked(records).items()):
        for seed, of_seed in sorted(seeds.items()):
            if made := _made(of_seed, open_dataset(dataset), store):
                yield made
                break
            sys.stderr.write(f"{name} on {dataset}, {variant}, seed {seed}: not in {store}\n")


def _attacked(records: Sequence[Record]) -> dict[tuple[str, str, str], dict[int, list[Record]]]:
    """Group the records of worst cases by (dataset, variant, model), and then by seed."""
    by_model: dict[tuple[str, str, str], dict[int, list[Record]]] = {}
    runs = thorough_runs(narrow_frame(records), EXPERIMENTS).drop_duplicates("run")
    for record in runs["record"]:
        key = (record.dataset, record.fidelity, record.model_name)
        by_model.setdefault(key, {}).setdefault(record.seed, []).append(record)
    return by_model


def _made(records: Sequence[Record], datamodule: GraphDataModule, store: Path) -> Made | None:
    """Return the entry of one trained model; `None` if the store lacks it or its worst graph."""
    # Among equally strong attacks, prefer those on the model itself.
    ordered = sorted(records, key=lambda record: KIND[record.threat or ""] not in SEEN)
    attacks = [(r, name) for r in ordered for name in r.accuracy if name != "clean"]
    record, attack = min(attacks, key=lambda item: item[0].accuracy[item[1]])
    victim = store / record.files["victim"]
    graphs = [
        store / file
        for label, file in record.files.items()
        if label == attack or label.startswith(f"{attack}/")
    ]
    if not victim.is_file() or not any(graph.is_file() for graph in graphs):
        return None
    if record.config.data.get("edge_values", "ones") != "ones":
        raise DataError(f"{victim}: reads edge values of its graph, which the zoo does not keep")
    config, tensors = record.config.model, read_artifact(victim).tensors
    sizes = (datamodule.num_features, datamodule.num_classes)
    model = build_recorded(config, *sizes, where=f"run {record.run}")
    load_weights(model, tensors, where=victim)
    model.eval()
    wanted = (record.accuracy["clean"], record.accuracy[attack])
    # With several surrogates, the record has the lowest accuracy, but not the graph's name.
    tried = {
        graph: accuracies(model, datamodule, _perturbed(graph, datamodule.graph), record.seed)
        for graph in graphs
        if graph.is_file()
    }
    graph = next((graph for graph, found in tried.items() if found == wanted), None)
    if graph is None:
        found = "; ".join(f"{clean:.6f} and {worst:.6f}" for clean, worst in tried.values())
        raise DataError(
            f"{victim}: has accuracy {found} and its record {wanted[0]:.6f} and {wanted[1]:.6f}, "
            f"clean and under {attack}; use the arithmetic of the record, as of its processor"
        )
    about = {"run": record.run, "seed": record.seed}
    entry = ZooEntry(
        name=record.model_name,
        dataset=record.dataset,
        variant=record.fidelity,
        seed=record.seed,
        file="",
        sha256="",
        graph="",
        graph_sha256="",
        weights=state_hash(model.state_dict()),
        run=record.run,
        config=config,
        in_channels=sizes[0],
        out_channels=sizes[1],
        clean_accuracy=wanted[0],
        worst_accuracy=wanted[1],
        attack=attack_in_words(record, attack),
        target_nodes=tensor_hash(datamodule.target_nodes.sort().values),
    )
    return Made(entry, Artifact(tensors, about), Artifact(read_artifact(graph).tensors, about))


def _perturbed(path: Path, clean: Data) -> PerturbedGraph:
    read = read_perturbed(path, clean)
    return PerturbedGraph(read.x, read.edge_index, clean.num_nodes or 0)


def accuracies(
    model: nn.Module, datamodule: GraphDataModule, graph: PerturbedGraph, seed: int
) -> tuple[float, float]:
    """Compute the accuracy at the test nodes, in 0..1, on the clean and on an attacked graph.

    Args:
        model: Model in eval mode.
        datamodule: The clean graph.
        graph: The attacked graph.
        seed: Seed of a model that samples.
    """
    victim, task, _ = probed(model, datamodule, "test", None, seed=seed)
    with victim:
        graphs = task.graph, graph
        clean, attacked = (task.accuracy(victim.predict(one, seed)) for one in graphs)
    return clean, attacked


def write_zoo(made: Sequence[Made], directory: Path) -> list[Path]:
    """Write weights, graphs and index; entries of other models stay.

    Args:
        made: The entries; one that harms the same weights less than the zoo's is left out.
        directory: Folder of the zoo, created if missing.

    Returns:
        The paths of the written files.

    Raises:
        ConfigError: There is nothing to write, or the zoo would exceed `LARGEST`; the existing
            files stay as they are.
    """
    if not made:
        raise ConfigError(f"{directory}: no model to write; name the records and store of one run")
    before = Zoo.open(directory).entries if (directory / INDEX).is_file() else []
    lowest = {(entry.key, entry.weights): entry.worst_accuracy for entry in before}
    made = [item for item in made if not _harms_less(item.entry, lowest)]
    new = {item.entry.key for item in made}
    submitted = {(entry.key, entry.weights): entry.submissions for entry in before}
    entries = [entry for entry in before if entry.key not in new]
    kept = [directory / name for entry in entries for name in (entry.file, entry.graph)]
    kept += [directory / of.graph for entry in before for of in entry.submissions]
    with TemporaryDirectory() as folder:
        for item in made:
            files = [f"{kind}-{item.entry.key}.safetensors" for kind in ("model", "graph")]
            contents = (item.weights, item.graph)
            paths = [
                write_artifact(Path(folder) / f, c) for f, c in zip(files, contents, strict=True)
            ]
            sha256, graph_sha256 = map(file_hash, paths)
            entry = replace(item.entry, file=files[0], sha256=sha256)
            # Of other weights, a submitted graph says nothing.
            submissions = submitted.get((entry.key, entry.weights), ())
            entry = replace(entry, submissions=submissions)
            entries.append(replace(entry, graph=files[1], graph_sha256=graph_sha256))
        staged = sorted(Path(folder).iterdir())
        total = sum(path.stat().st_size for path in [*kept, *staged])
        if total > LARGEST:
            raise ConfigError(
                f"{directory}: {total / 1e6:.1f} MB of weights and graphs, at most "
                f"{LARGEST / 1e6:g} are kept; name fewer records"
            )
        written = [
            write_whole(directory / path.name, path.read_bytes(), option="--zoo") for path in staged
        ]
    return [*written, write_index(directory, entries)]


def _harms_less(entry: ZooEntry, lowest: Mapping[tuple[str, str], float]) -> bool:
    """Return whether the zoo has a stronger graph for these weights, and say so."""
    kept = lowest.get((entry.key, entry.weights), 1.0)
    if harms_less := kept < entry.worst_accuracy:
        now, new = f"{100 * kept:.2f} %", f"{100 * entry.worst_accuracy:.2f} %"
        sys.stderr.write(f"{entry.key}: keeps its graph, which leaves {now}; the new one {new}\n")
    return harms_less


def check_zoo(zoo: Zoo, records: Iterable[Record]) -> bool:
    """Evaluate every model again, print a comparison, and return whether all are as recorded.

    Args:
        zoo: The models.
        records: Published records, including the runs that the index names.
    """
    latest = {record.run: record for record in records}
    rows = [_checked(zoo, entry, latest.get(entry.run)) for entry in zoo.entries]
    rows += [_checked_submission(zoo, *of) for of in _submitted(zoo)]
    frame = pd.DataFrame(rows)
    if frame.empty:
        sys.stdout.write(f"{zoo.directory}: no model\n")
        return False
    sys.stdout.write(show(Table("", frame, f"{zoo.directory}: accuracy in %")))
    return bool((frame["found"] == "as recorded").all())


def _submitted(zoo: Zoo) -> Iterator[tuple[ZooEntry, Submission]]:
    for entry in zoo.entries:
        for submission in entry.submissions:
            yield entry, submission


def _checked_submission(zoo: Zoo, entry: ZooEntry, submission: Submission) -> dict[str, str]:
    """Return the table row of a submitted graph."""
    row = {"model": f"{entry.name}, {submission.author}", "dataset": entry.dataset}
    row |= {"variant": entry.variant, "seed": str(entry.seed)}
    try:
        model, datamodule = zoo.load(entry), open_dataset(entry.dataset)
        graph = zoo.submitted_graph(submission, datamodule.graph)
        clean, measured = accuracies(model, datamodule, graph, entry.seed)
    except RobustDiffusionError as error:
        return row | {"clean": "-", "worst": "-", "found": str(error)}
    same = round(measured, 9) == round(submission.accuracy, 9)
    found = "as recorded" if same else f"the index has {100 * submission.accuracy:.2f}"
    return row | {"clean": f"{100 * clean:.2f}", "worst": f"{100 * measured:.2f}", "found": found}


def _checked(zoo: Zoo, entry: ZooEntry, record: Record | None) -> dict[str, str]:
    """Return the table row of an entry: its name, accuracies and the outcome of the check."""
    row = {"model": entry.name, "dataset": entry.dataset, "variant": entry.variant}
    recorded = (entry.clean_accuracy, entry.worst_accuracy)
    clean = worst = "-"
    try:
        model, datamodule = zoo.load(entry), open_dataset(entry.dataset)
        graph = zoo.worst_graph(entry, datamodule.graph)
        measured = accuracies(model, datamodule, graph, entry.seed)
    except RobustDiffusionError as error:
        found = str(error)
    else:
        clean, worst = (f"{100 * value:.2f}" for value in measured)
        found = "as recorded"
        if record is None or record.error:
            found = f"run {entry.run} is not among the records"
        elif (record.accuracy["clean"], min(record.accuracy.values())) != recorded:
            found = f"the record of run {entry.run} has other accuracies than the index"
        elif measured != recorded:
            found = "the index has " + " and ".join(f"{100 * value:.2f}" for value in recorded)
    return row | {"seed": str(entry.seed), "clean": clean, "worst": worst, "found": found}


if __name__ == "__main__":
    main()
