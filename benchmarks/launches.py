"""Launches of an epoch of Beltrami (3 x 64, one step) on a GPU, counted on a simulated one.

Counts operators that compute, and Triton kernels, which are not executed. Some of PyTorch's
operators launch several kernels. The counts are the same on every graph.

python benchmarks/launches.py
"""

import os
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

os.environ |= {"ROBUST_DIFFUSION_CARD": "1", "TRITON_INTERPRET": "1"}
sys.path.append(str(Path(__file__).parents[1]))

import torch
from networks import ONE_STEP, epoch_of, network
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch_geometric.data import Data

from robust_diffusion.data import GraphDataModule
from robust_diffusion.operators import set_backend
from robust_diffusion.operators.kernels import triton_kernels
from tests.card import CARD, OnCard, card

NODES, FEATURES, CLASSES = 6, 302, 7
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


def count(backend: Any) -> Counter[str]:
    """Count the launches of an epoch under a backend, after one that prepares the graph."""
    set_backend(backend)
    torch.manual_seed(0)
    along = torch.arange(NODES)
    edge_index = torch.stack([torch.cat([along, along.roll(1)]), torch.cat([along.roll(1), along])])
    sizes = SimpleNamespace(num_features=FEATURES, num_classes=CLASSES)
    model = network(cast(GraphDataModule, sizes), ONE_STEP)
    x, y, mask = torch.rand(NODES, FEATURES), along % CLASSES, along > 0
    launches = Launches()
    triton_kernels.launch = launches.count
    torch.optim.Adam = partial(ADAM, foreach=True)  # as on CUDA by default
    with card():
        graph = Data(x=x.to(CARD), edge_index=edge_index.to(CARD), y=y.to(CARD), mask=mask.to(CARD))
        epoch = epoch_of(model.to(CARD), graph, graph)
        epoch()
        launches.counts.clear()
        with launches:
            epoch()
    return launches.counts


if __name__ == "__main__":
    for backend in ("torch", "triton"):
        counts = count(backend)
        print(backend, counts.total(), dict(counts.most_common()))
