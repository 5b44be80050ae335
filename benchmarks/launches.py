"""Launches and host syncs of an epoch of Beltrami (3 x 64, one step), and of `auto`.

On a simulated GPU, but for the host's time. `auto` attacks a GCN and Beltrami on a synthetic graph,
within 5 nodes of 20 edges. A round of moves trims edges, allots them, and refits features twice.

Counts operators that compute, and Triton kernels, which are not executed. Some of PyTorch's
operators launch several kernels. The counts are the same on every graph. A fit trains the released
network under the `torch` backend with a CSV logger, as a run does by default. In a recorded fit, an
epoch is one launch, which computes nothing here. Its host time is processor time on the CPU.

`before` in the results is the former recorder, with three graphs per epoch and Adam outside. Its
fit was measured by a stand-in whose replays also did nothing, on a machine with other work.

    python benchmarks/launches.py                      # print the launches of an epoch
    python benchmarks/launches.py --record after       # also of a fit and `auto`; launches.json
    PYTHONPATH=../before/src python benchmarks/launches.py --record before    # another checkout
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

os.environ |= {"ROBUST_DIFFUSION_CARD": "1", "TRITON_INTERPRET": "1"}
sys.path.append(str(Path(__file__).parents[1]))

import pytorch_lightning as pl
import torch
from networks import ONE_STEP, epoch_of, network
from pytorch_lightning.loggers import CSVLogger
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch_geometric.data import Data

from robust_diffusion.attacks import AutoInjection, Budget
from robust_diffusion.attacks.gradient_ascent import StepRule
from robust_diffusion.attacks.injection.base import draw_targets
from robust_diffusion.attacks.injection.constants import AUTO
from robust_diffusion.attacks.injection.edge_placement import Placement
from robust_diffusion.attacks.injection.part import Climb, Injection
from robust_diffusion.attacks.task import Task
from robust_diffusion.data import GraphDataModule
from robust_diffusion.flows import Beltrami
from robust_diffusion.models import GCN, GraphPDE
from robust_diffusion.models.victim import Victim
from robust_diffusion.operators import set_backend
from robust_diffusion.operators.kernels import triton_kernels
from robust_diffusion.training import Fit, cuda_graphs
from robust_diffusion.training.cuda_graphs import AHEAD
from tests.attacks.graphs import small_graph
from tests.attacks.graphs import train as fitted
from tests.card import CARD, OnCard, card, strategy

RESULTS = Path(__file__).with_name("results") / "launches.json"
NODES, FEATURES, CLASSES = 6, 302, 6
BUDGET = Budget(5, 20, (-0.94, 0.94))
STEPS, ROUNDS = AutoInjection().num_steps, len(AUTO.moves)
ADAM = torch.optim.Adam
ALLOCATE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
RENAME = {"_unsafe_view", "lift_fresh", "detach"}


class Launches(TorchDispatchMode):
    """Counter of operators that compute on the simulated GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def count(self, kernel: Any, *_: object) -> None:
        """Count a Triton kernel."""
        self.counts[kernel.__name__] += 1

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        aliases = [value.alias_info for value in func._schema.returns]
        is_view = any(alias is not None and not alias.is_write for alias in aliases)
        on_card = any(isinstance(leaf, OnCard) for leaf in tree_leaves((args, kwargs, out)))
        if on_card and not is_view and name not in ALLOCATE | RENAME:
            self.counts[name] += 1
        return out


def built(*, released: bool = False) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Build the network, or that of the authors' code without rewiring, and a ring to train on."""
    torch.manual_seed(0)
    along = torch.arange(NODES)
    edge_index = torch.stack([torch.cat([along, along.roll(1)]), torch.cat([along.roll(1), along])])
    sizes = SimpleNamespace(num_features=FEATURES, num_classes=CLASSES)
    model = network(cast(GraphDataModule, sizes), ONE_STEP)
    if released:
        flow = partial(Beltrami, attention="resampled", gradient_norm="residual")
        model = GraphPDE(FEATURES, out_channels=CLASSES, flow=flow, solver=ONE_STEP)
    x, y, mask = torch.rand(NODES, FEATURES), along % CLASSES, along > 0
    return model, {"x": x, "edge_index": edge_index, "y": y, "mask": mask}


def count(backend: Any, *, released: bool = False) -> Counter[str]:
    """Count the launches of an epoch under a backend, after one that prepares the graph."""
    set_backend(backend)
    model, ring = built(released=released)
    launches = Launches()
    triton_kernels.launch = launches.count
    torch.optim.Adam = partial(ADAM, foreach=True)  # as on CUDA by default
    with card():
        graph = Data(**{name: value.to(CARD) for name, value in ring.items()})
        epoch = epoch_of(model.to(CARD), graph, graph)
        epoch()
        launches.counts.clear()
        with launches:
            epoch()
    return launches.counts


@contextmanager
def recording(device: str, launches: Counter[str]) -> Iterator[None]:
    """Let a device record epochs, whose replays are counted and do nothing."""

    def record(epoch: Callable[[], None]) -> Callable[[], None]:
        epoch()
        return lambda: launches.update(["graph"])

    replaced = {"DEVICE": device, "record": record, "_close": lambda *_: True}
    with mock.patch.multiple(cuda_graphs, **replaced):
        yield


def train(epochs: int, **options: Any) -> float:
    """Train for some epochs; return the processor time in seconds."""
    model, ring = built(released=True)
    part = torch.arange(NODES) % 3
    split = {f"{name}_mask": part == i for i, name in enumerate(("train", "val", "test"))}
    data = GraphDataModule.from_data(Data(**ring, **split), transductive=True)
    quiet = {"enable_model_summary": False, "num_sanity_val_steps": 0, "log_every_n_steps": 1}
    fit = Fit(partial(pl.Trainer, **quiet | options), max_epochs=epochs, progress_bar=False)
    with TemporaryDirectory() as folder:
        logger, start = CSVLogger(folder), time.process_time()
        fit(model, data, logger=logger)
        return time.process_time() - start


def count_fit() -> dict[str, float]:
    """Count the launches and the host syncs of an epoch of a recorded fit."""
    set_backend("torch")
    totals = []
    for epochs in (1, 1 + AHEAD, 1 + 2 * AHEAD):  # the first fills caches
        with card() as syncs, Launches() as launches:
            with recording(CARD, launches.counts):
                train(epochs, strategy=strategy())
            totals.append((launches.counts.total(), syncs.total()))
    launched, waited = ((b - a) / AHEAD for a, b in zip(*totals[1:], strict=True))
    return {"launches": launched, "host_syncs": waited}


def host_milliseconds() -> float:
    """Measure the host's own time per epoch of a recorded fit."""
    set_backend("torch")
    with recording("cpu", Counter()):
        spent = [[train(epochs, accelerator="cpu") for epochs in (20, 220)] for _ in range(3)]
    return min(1e3 * (many - few) / 200 for few, many in spent)


@dataclass(frozen=True)
class Syncs:
    """Means over rounds of moves."""

    per_round: float
    passes_per_round: float
    per_pass: float


def trained(name: str, graph: Data) -> torch.nn.Module:
    """Train a network for a few epochs, always with the same seed."""
    torch.manual_seed(0)
    f, c = graph.num_features, graph.num_classes
    build: dict[str, Any] = {
        "gcn": partial(GCN, f, 16, out_channels=c),
        "beltrami": partial(GraphPDE, f, out_channels=c, flow=Beltrami, solver=ONE_STEP),
    }
    return fitted(build[name](), graph, graph.index_train, epochs=60)


def count_moves(name: str) -> Syncs:
    """Count the host syncs of rounds of moves, one of each kind."""
    graph = small_graph()
    model, places, passes = trained(name, graph), Counter[str](), 0
    move, generator = Climb._moved, torch.Generator().manual_seed(0)
    with card() as syncs:
        model = model.to(CARD)
        x, edge_index, labels = (t.to(CARD) for t in (graph.x, graph.edge_index, graph.y))
        task = Task(Data(x=x, edge_index=edge_index), graph.index_test.to(CARD), labels)
        rows = draw_targets(task.targets, BUDGET.injected_degrees, generator)
        start = Placement.of(task, rows, BUDGET.injected_degrees, 0)

        def moved(part: Climb, *args: Any, **options: Any) -> Any:
            nonlocal passes
            before, forwards = syncs.copy(), part.victim.forwards
            out = move(part, *args, **options)
            places.update(syncs - before)
            passes += part.victim.forwards - forwards
            return out

        with Victim(model, x, edge_index) as victim, mock.patch.object(Climb, "_moved", moved):
            bound = "", victim, victim, task, BUDGET, STEPS, generator
            climb = Climb(*bound, "equal", StepRule(), share=1 / 24, moves=ROUNDS)
            climb.improve(Injection.at(task, start, x[: len(rows)]))
    # Numbers that are copied to the device without waiting are no syncs.
    waits = Counter({place: n for place, n in places.items() if "non_blocking" not in place})
    return Syncs(waits.total() / ROUNDS, passes / ROUNDS, waits.total() / passes)


def main() -> None:
    """Count, print, and record under a name."""
    parser = argparse.ArgumentParser(description="Count launches and host syncs of an epoch.")
    parser.add_argument("--record", help="name of the counts in results/launches.json")
    name = parser.parse_args().record
    counts = {backend: count(backend) for backend in ("torch", "triton")}
    counts["triton_released"] = count("triton", released=True)
    for backend, launches in counts.items():
        print(backend, launches.total(), dict(launches.most_common()))
    if name:
        fit = count_fit() | {"host_ms": host_milliseconds()}
        print("fit", fit)
        auto = {model: asdict(count_moves(model)) for model in ("gcn", "beltrami")}
        print("auto", auto)
        recorded = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
        totals = {backend: launches.total() for backend, launches in counts.items()}
        recorded[name] = totals | {"fit": fit, "auto": auto}
        RESULTS.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
