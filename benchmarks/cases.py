"""Benchmark cases; each returns plain numbers for the results file."""

import copy
import tempfile
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from attack_cases import auto, rows, votes, white_box
from floor import floor_seconds
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from measure import by_turns, in_own_process, summary
from networks import ONE_STEP, PROGRAMS, YARDSTICK, build, epoch_of, load, network, program
from roofline import roofline
from successors import successors
from torch import nn
from yardstick.gin import sums_first
from yardstick.graph_sage import pools_whole

from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.data import GraphDataModule
from robust_diffusion.models import GIN, GNNGuard, GraphSAGE
from robust_diffusion.models.convolutional import GINConv, SAGEConv
from robust_diffusion.models.stack import LayerStack
from robust_diffusion.operators import set_backend, sparse_input
from robust_diffusion.system.portable import PORTABLE
from robust_diffusion.training import Fit

DATASETS = ("cora", "amazon_computer")
BAGS_OF_WORDS = ("planetoid_citeseer", "coauthor")
BACKENDS = ("torch", "compiled")


def epoch(repeat: int) -> dict[str, Any]:
    """Measure one training epoch with validation for every program, and the floor."""
    return {name: _epoch(name, repeat) for name in DATASETS}


def _epoch(dataset: str, repeat: int) -> dict[str, Any]:
    datamodule = load(dataset)
    _check_same(datamodule)
    runs = {name: program(name, datamodule, ONE_STEP, method=ONE_STEP.method) for name in PROGRAMS}
    seconds = by_turns(runs, repeat=repeat)
    measured: dict[str, Any] = {name: summary(values) for name, values in seconds.items()}
    return measured | {"floor": {"median_ms": 1e3 * floor_seconds(datamodule)}}


def words(repeat: int) -> dict[str, Any]:
    """Measure one training epoch on bags of words, with features prepared by `Fit` or plain."""
    return {name: _words(name, max(3, repeat // 3)) for name in BAGS_OF_WORDS}


def _words(dataset: str, repeat: int) -> dict[str, Any]:
    datamodule = load(dataset)
    return _prepared_and_plain(datamodule, network(datamodule, ONE_STEP), repeat)


def guard(repeat: int) -> dict[str, Any]:
    """Measure one training epoch of GNNGuard on bags of words, with prepared and plain features."""
    return {name: _guard(name, max(3, repeat // 3)) for name in BAGS_OF_WORDS}


def _guard(dataset: str, repeat: int) -> dict[str, Any]:
    datamodule = load(dataset)
    torch.manual_seed(0)
    model = GNNGuard(datamodule.num_features, 64, datamodule.num_classes)
    return _prepared_and_plain(datamodule, model, repeat)


def _prepared_and_plain(
    datamodule: GraphDataModule, model: nn.Module, repeat: int
) -> dict[str, Any]:
    plain = [datamodule.view("train"), datamodule.view("val")]
    prepared = [copy.copy(view) for view in plain]
    for view in prepared:
        view.x = sparse_input(view.x)
    set_backend("auto")
    runs = {
        "prepared": epoch_of(copy.deepcopy(model), *prepared),
        "plain": epoch_of(model, *plain),
    }
    return {name: summary(values) for name, values in by_turns(runs, repeat=repeat).items()}


def gin(repeat: int) -> dict[str, Any]:
    """Measure one training epoch of GIN that sums neighbours after or before the first Linear."""
    runs = partial(_written_two_ways, GIN, GINConv, sums_first, names=("after", "before"))
    return {name: runs(name, max(3, repeat // 3)) for name in (*DATASETS, *BAGS_OF_WORDS)}


def sage(repeat: int) -> dict[str, Any]:
    """Measure one training epoch of GraphSAGE that pools the projection in parts or as a whole."""
    runs = partial(_written_two_ways, GraphSAGE, SAGEConv, pools_whole, names=("parts", "whole"))
    return {name: runs(name, max(3, repeat // 3)) for name in ("amazon_computer", *BAGS_OF_WORDS)}


def _written_two_ways(
    build: type[LayerStack],
    of: type[nn.Module],
    written_otherwise: Callable[..., torch.Tensor],
    dataset: str,
    repeat: int,
    *,
    names: tuple[str, str],
) -> dict[str, Any]:
    """Measure an epoch with the package's layers, and with another implementation of them."""
    datamodule = load(dataset)
    views = [copy.copy(datamodule.view(role)) for role in ("train", "val")]
    for view in views:
        view.x = sparse_input(view.x)
    set_backend("auto")
    torch.manual_seed(0)
    ours = build(datamodule.num_features, 64, datamodule.num_classes)
    other = copy.deepcopy(ours)
    for layer in other.layers:
        if isinstance(layer, of):
            layer.forward = partial(written_otherwise, layer)
    runs = dict(zip(names, (epoch_of(ours, *views), epoch_of(other, *views)), strict=True))
    return {name: summary(values) for name, values in by_turns(runs, repeat=repeat).items()}


def _check_same(datamodule: GraphDataModule) -> None:
    """Check that all programs compute the same logits."""
    view = datamodule.view("val")
    logits = {}
    for name in PROGRAMS:
        model = build(name, datamodule, ONE_STEP, method=ONE_STEP.method).eval()
        if name != YARDSTICK:
            set_backend(name)
        with torch.no_grad():
            logits[name] = model(view.x, view.edge_index)
        torch.testing.assert_close(logits[name], logits[YARDSTICK], rtol=1e-4, atol=1e-5)


def memory(repeat: int) -> dict[str, Any]:
    """Measure by how many MB three epochs make a fresh process grow."""
    measured = partial(in_own_process, "networks.py")
    return {
        name: {
            "Cora": measured("cora", name),
            "Amazon": measured("amazon_computer", name),
            "Amazon, whole graph": measured("amazon_computer", name, "--whole"),
        }
        for name in PROGRAMS
    }


def training(repeat: int) -> dict[str, Any]:
    """Measure 550 epochs on Cora in Lightning, with progress bar, metrics and checkpoints."""
    datamodule = load("cora")
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        trainer = instantiate(compose("config", ["trainer=cpu"]).trainer)
    fit = Fit(trainer, max_epochs=550, patience=550)
    seconds = {}
    for backend in BACKENDS:
        set_backend(backend)
        with tempfile.TemporaryDirectory() as folder:
            result = fit(network(datamodule, ONE_STEP), datamodule, directory=Path(folder))
        seconds[backend] = result.seconds
    return seconds


def seeds(repeat: int) -> dict[str, Any]:
    """Measure a sweep over seeds, sequential and in two processes."""
    return {str(count): in_own_process("sweep.py", str(count)) for count in (5,)}


def portable(repeat: int) -> dict[str, Any]:
    """Measure one training epoch with default and portable arithmetic, in alternating processes."""
    return {"cora": _portable("cora", str(max(3, repeat // 3)))}


def _portable(dataset: str, repeat: str) -> dict[str, Any]:
    seconds_by_name: dict[str, list[float]] = defaultdict(list)
    for _ in range(3):
        for arithmetic, environment in (("default", {}), ("portable", PORTABLE)):
            measured = in_own_process("portable.py", dataset, repeat, environment=environment)
            for name, seconds in measured.items():
                seconds_by_name[f"{name}, {arithmetic}"] += seconds
    return {name: summary(seconds) for name, seconds in seconds_by_name.items()}


def scaling(repeat: int) -> dict[str, Any]:
    """Measure time and memory of an epoch against the number of edges, with their exponents."""
    return in_own_process("scaling.py")


def threads(repeat: int) -> dict[str, Any]:
    """Measure an epoch on Amazon Computer and a step on 3 million edges, with 1 and 2 threads."""
    rounds = {"amazon_computer": max(3, repeat // 3), "3000000": max(2, repeat // 4)}
    return {of: in_own_process("steps.py", "threads", of, str(n)) for of, n in rounds.items()}


def freed(repeat: int) -> dict[str, Any]:
    """Measure a step on 3 million edges in processes that keep or return freed memory."""
    measured = partial(in_own_process, "steps.py")
    rounds = str(max(2, repeat // 4))
    return {of: measured(of, "3000000", rounds)["step"] for of in ("given_back", "kept")}


def growth(repeat: int) -> dict[str, Any]:
    """Measure `scaling` for the compiled kernels, at the sizes to which the exponent is fitted."""
    return in_own_process("scaling.py", "compiled")  # type: ignore[no-any-return]


def loading(repeat: int) -> dict[str, Any]:
    """Measure loading, normalising and splitting a graph: median seconds and peak memory."""
    arguments = {name: [f"--dataset={name}"] for name in ("amazon_computer", "coauthor")}
    arguments["generated"] = ["--nodes=1000000", "--edges=10000000"]
    return {name: _loading(given, max(1, repeat // 5)) for name, given in arguments.items()}


def _loading(arguments: list[str], repeat: int) -> dict[str, float]:
    # The first run is dropped, since it reads the files from disk.
    _, *runs = [in_own_process("loading.py", *arguments) for _ in range(1 + repeat)]
    return {
        "seconds": median(run["seconds"] for run in runs),
        "peak_gib": max(run["peak_gib"] for run in runs),
        "edges": runs[0]["edges"],
    }


_ALL = (
    epoch,
    successors,
    roofline,
    words,
    guard,
    gin,
    sage,
    memory,
    training,
    white_box,
    auto,
    rows,
    votes,
    seeds,
    portable,
    loading,
    threads,
    freed,
    growth,
    scaling,
)
CASES: dict[str, Callable[[int], Any]] = {case.__name__: case for case in _ALL}
