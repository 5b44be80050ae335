"""Epochs, attacks and launches on a GPU; writes results/<card>.json and .md.

    ROBUST_DIFFUSION_DATA=... python benchmarks/gpu.py            # about three minutes
    python benchmarks/gpu.py --only epoch,attack                  # a part of it

Programs that are compared take turns. Times include the wait until the GPU has finished. Without a
GPU, everything runs at a small size on the CPU, as a test, and nothing is written.
"""

import argparse
import json
import os
import re
import time
import warnings
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytorch_lightning as pl
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from measure import by_turns, machine, summary
from networks import ONE_STEP, YARDSTICK, epoch_of, network, straightforward
from tables import card_page
from torch import nn
from torch_geometric.data import Data

from robust_diffusion import Budget, evaluate, load_model, open_dataset
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.data import GraphDataModule
from robust_diffusion.operators import set_backend
from robust_diffusion.training import Fit

RESULTS = Path(__file__).with_name("results")
ON_CARD = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_CARD else "cpu")
ALL = ("heat", "grand", "mean_curvature", "beltrami", "hang")
SOME = ("heat", "beltrami")
FLOWS = {"cora": ALL, "amazon_computer": SOME, "pubmed": SOME} if ON_CARD else {"cora": ("heat",)}
BACKENDS = ("torch", "triton") if ON_CARD else ("torch",)
REPEAT = 12 if ON_CARD else 3
MEGABYTE = 1e6

Built = tuple[GraphDataModule, nn.Module]


def build(dataset: str, flow: str, fidelity: str) -> Built:
    """Build a network of three layers of 64 channels and its graph, as the command line does."""
    size = ("model.num_layers=3", "model.hidden_channels=64", "download=false")
    named = (f"dataset={dataset}", f"flow={flow}", f"fidelity={fidelity}")
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        cfg = compose("config", [*named, *size])
    datamodule = instantiate(cfg.data)
    datamodule.setup()
    torch.manual_seed(0)
    return datamodule, instantiate(cfg.model)(
        in_channels=datamodule.num_features, out_channels=datamodule.num_classes
    )


def views(datamodule: GraphDataModule) -> tuple[Data, Data]:
    """Return the graphs of training and validation, on the GPU."""
    return datamodule.view("train").to(DEVICE), datamodule.view("val").to(DEVICE)


def finished() -> None:
    """Wait until the GPU has finished."""
    if ON_CARD:
        torch.cuda.synchronize()


def program(built: Built, backend: str) -> Callable[[], None]:
    """Return a function that runs one epoch under a backend."""
    datamodule, model = built
    epoch = epoch_of(model, *views(datamodule))

    def run() -> None:
        if backend != YARDSTICK:
            set_backend(backend)  # type: ignore[arg-type]
        epoch()
        finished()

    return run


def epochs() -> dict[str, Any]:
    """Measure an epoch with validation: milliseconds, and peak memory in MB."""
    found: dict[str, Any] = {}
    for dataset, flows in FLOWS.items():
        for flow in flows:
            for fidelity in ("released", "paper"):
                name = f"{dataset}, {flow}, {fidelity}"
                found[name] = _programs(dataset, flow, fidelity)
                print(
                    name, {k: f"{v['median_ms']:.2f}" for k, v in found[name].items()}, flush=True
                )
    return found


def _programs(dataset: str, flow: str, fidelity: str) -> dict[str, Any]:
    datamodule, model = build(dataset, flow, fidelity)
    runs = {b: program((datamodule, deepcopy(model).to(DEVICE)), b) for b in BACKENDS}
    return measured(runs)


def measured(runs: dict[str, Callable[[], None]]) -> dict[str, Any]:
    """Measure milliseconds and peak memory of programs that take turns."""
    peaks = {name: _peak(run) for name, run in runs.items()}
    seconds = by_turns(runs, repeat=REPEAT, warm_up=2)
    return {name: summary(of) | {"peak_mb": peaks[name]} for name, of in seconds.items()}


def foreign() -> dict[str, Any]:
    """Measure an epoch of Beltrami with one step against the same in PyG and torchdiffeq."""
    found = {}
    for dataset in FLOWS:
        datamodule, _ = build(dataset, "beltrami", "paper")
        model = network(datamodule, ONE_STEP)
        runs = {b: program((datamodule, deepcopy(model).to(DEVICE)), b) for b in BACKENDS}
        other = straightforward(datamodule, model, method=ONE_STEP.method)
        runs[YARDSTICK] = program((datamodule, other.to(DEVICE)), YARDSTICK)
        found[dataset] = measured(runs)
        print(dataset, {k: f"{v['median_ms']:.2f}" for k, v in found[dataset].items()}, flush=True)
    return found


def _peak(run: Callable[[], None]) -> float:
    """Measure by how many MB GPU memory grows in a second call."""
    run()
    if not ON_CARD:
        return 0.0
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    return (torch.cuda.max_memory_allocated() - before) / MEGABYTE


def fits() -> dict[str, Any]:
    """Measure milliseconds per epoch of a fit, including Lightning, its logs and metrics."""
    found = {}
    trainer = partial(pl.Trainer, accelerator="gpu" if ON_CARD else "cpu")
    options = {"num_sanity_val_steps": 0, "enable_model_summary": False, "log_every_n_steps": 1}
    for dataset in FLOWS:
        for backend in BACKENDS if dataset == "cora" else BACKENDS[-1:]:
            set_backend(backend)  # type: ignore[arg-type]
            for fidelity in ("released", "paper"):
                datamodule, model = build(dataset, "beltrami", fidelity)
                for cuda_graphs in (False, True) if ON_CARD else (False,):
                    spent = []
                    for most in (20, 100) if ON_CARD else (1, 3):
                        train = Fit(
                            partial(trainer, **options),  # type: ignore[arg-type]
                            max_epochs=most,
                            progress_bar=False,
                            cuda_graphs=cuda_graphs,
                        )
                        with TemporaryDirectory() as folder:
                            result = train(deepcopy(model), datamodule, directory=Path(folder))
                        spent.append((result.epochs, 1e3 * result.seconds))
                    (few, before), (many, after) = spent  # the difference leaves the recording out
                    name = f"{dataset}, {fidelity}, {backend}" + ", captured" * cuda_graphs
                    found[name] = (after - before) / (many - few)
                    print(f"fit, {name}: {found[name]:.1f} ms an epoch", flush=True)
    return found


def attacks() -> dict[str, Any]:
    """Measure seconds and worst-case accuracy of attacks on published models."""
    found = {}
    nodes = 50 if ON_CARD else 1
    data = open_dataset("cora")
    budget = Budget(nodes, 50, edge_ratio=0.2, feature_limits=(-0.94, 0.94))
    cases = [("gcn", "auto"), ("gcn", "auto_modification"), ("beltrami", "auto")]
    for name, attack in cases if ON_CARD else [("gcn", "tdgia")]:
        for backend in BACKENDS[-1:]:
            set_backend(backend)  # type: ignore[arg-type]
            model = load_model(name).to(DEVICE)
            start = time.perf_counter()
            report = evaluate(
                model, data, attacks=attack, budget=budget, device=DEVICE, progress=False
            )
            found[f"{name}, {attack}, {backend}"] = {
                "seconds": time.perf_counter() - start,
                "clean": report.clean_accuracy,
                "robust": report.robust_accuracy,
            }
            print(name, attack, backend, found[f"{name}, {attack}, {backend}"], flush=True)
    return found


def launches() -> dict[str, Any]:
    """Count the kernel launches and host syncs of an epoch of Beltrami on Cora."""
    found = {}
    datamodule, _ = build("cora", "beltrami", "paper")
    networks = {
        "one step": network(datamodule, ONE_STEP),
        "released": build("cora", "beltrami", "released")[1],
        "paper": build("cora", "beltrami", "paper")[1],
    }
    for name, model in networks.items():
        for backend in BACKENDS:
            run = program((datamodule, deepcopy(model).to(DEVICE)), backend)
            found[f"{name}, {backend}"] = _counted(run)
            print(name, backend, found[f"{name}, {backend}"], flush=True)
    return found


def _counted(run: Callable[[], None]) -> dict[str, float]:
    for _ in range(3):
        run()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if ON_CARD:
            torch.cuda.set_sync_debug_mode("warn")
        run()
        if ON_CARD:
            torch.cuda.set_sync_debug_mode("default")
    waits = sum("synchroniz" in str(warning.message) for warning in caught)
    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if ON_CARD else []
    with torch.profiler.profile(activities=kinds) as profile:
        run()
    events = profile.key_averages()
    count = sum(event.count for event in events if "LaunchKernel" in event.key)
    busy = sum(event.self_device_time_total for event in events) / 1e3
    return {"launches": count, "host_syncs": waits, "card_ms": busy}


CASES = {
    "epoch": epochs,
    "straightforward": foreign,
    "fit": fits,
    "attack": attacks,
    "launches": launches,
}


def main() -> None:
    """Measure, and record the results if there is a GPU."""
    parser = argparse.ArgumentParser(description="Measure on a GPU.")
    parser.add_argument("--only", default=",".join(CASES), help=f"of {', '.join(CASES)}")
    names = parser.parse_args().only.split(",")
    if unknown := set(names) - CASES.keys():
        parser.error(f"--only={','.join(sorted(unknown))}: use {', '.join(CASES)}")
    described = machine()
    described["card"] = torch.cuda.get_device_name() if ON_CARD else None
    recorded: dict[str, Any] = {}
    slug = re.sub(r"[^a-z0-9]+", "-", str(described["card"]).lower()).strip("-")
    path = Path(os.environ.get("OUT", RESULTS)) / f"{slug}.json"
    for before in (RESULTS / path.name, path):  # keeps the results of other parts
        if before.is_file():
            recorded = json.loads(before.read_text())
    recorded["machine"] = described
    for name in names:
        recorded[name] = CASES[name]()
        if ON_CARD:
            text = json.dumps(recorded, indent=1, sort_keys=True)
            path.write_text(text + "\n")
            path.with_suffix(".md").write_text(card_page(json.loads(text)))


if __name__ == "__main__":
    main()
