"""Benchmark cases; each returns plain numbers for the results file."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from attack_cases import auto, rows, white_box
from floor import floor_seconds
from measure import by_turns, in_own_process, summary
from networks import ONE_STEP, PROGRAMS, YARDSTICK, build, epoch_of, load, network, program
from torch import nn

from robust_diffusion.data import GraphDataModule
from robust_diffusion.models import GNNGuard
from robust_diffusion.operators import set_backend, sparse_features

DATASETS = ("cora", "amazon_computer")
BAGS_OF_WORDS = ("planetoid_citeseer", "coauthor")


def epoch(repeat: int) -> dict[str, Any]:
    """Measure one training epoch with validation for every program, and the floor."""
    # The straightforward form takes 7 to 25 s on Amazon; fewer rounds keep this under 5 minutes.
    rounds = {"cora": repeat, "amazon_computer": max(3, repeat // 3)}
    return {name: _epoch(name, rounds[name]) for name in DATASETS}


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
    model = GNNGuard(datamodule.num_features, 64, out_channels=datamodule.num_classes)
    return _prepared_and_plain(datamodule, model, repeat)


def _prepared_and_plain(
    datamodule: GraphDataModule, model: nn.Module, repeat: int
) -> dict[str, Any]:
    plain = [datamodule.view("train"), datamodule.view("val")]
    prepared = [copy.copy(view) for view in plain]
    for view in prepared:
        view.x = sparse_features(view.x)
    set_backend("auto")
    runs = {
        "prepared": epoch_of(copy.deepcopy(model), *prepared),
        "plain": epoch_of(model, *plain),
    }
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


CASES: dict[str, Callable[[int], Any]] = {
    case.__name__: case for case in (epoch, words, guard, memory, white_box, auto, rows)
}
