"""Networks that the benchmarks train, built from the package and from the yardstick."""

import argparse
import json
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from measure import PeakGrowth
from torch import nn
from torch_geometric.data import Data
from yardstick.straightforward import BeltramiFlow, Net

from robust_diffusion.data import GraphDataModule
from robust_diffusion.flows import Beltrami
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GraphPDE
from robust_diffusion.operators import set_backend

FLOOR = 0.01
YARDSTICK = "straightforward"
PROGRAMS = (YARDSTICK, "torch", "compiled")
"""The yardstick, and the package under each of its backends."""

ONE_STEP = Solver("implicit_adams", num_steps=1)


def load(dataset: str) -> GraphDataModule:
    """Load a dataset with the split of the experiments."""
    from hydra import compose, initialize_config_dir
    from hydra.utils import instantiate

    from robust_diffusion.config import CONFIG_DIR

    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        return instantiate(compose("config", [f"dataset={dataset}", "download=false"]).data)


def network(
    datamodule: GraphDataModule, solver: Solver, *, hidden_channels: int = 64, num_layers: int = 3
) -> GraphPDE:
    """Build the package's Beltrami network, always with the same seed."""
    torch.manual_seed(0)
    return GraphPDE(
        datamodule.num_features,
        hidden_channels,
        out_channels=datamodule.num_classes,
        flow=partial(Beltrami, gradient_floor=FLOOR),
        solver=solver,
        num_layers=num_layers,
    )


def straightforward(datamodule: GraphDataModule, ours: GraphPDE, **solver: float | str) -> Net:
    """Build the yardstick with the weights of `ours`."""
    widths = [datamodule.num_features, 64, 64, datamodule.num_classes]
    flow = partial(BeltramiFlow, heads=4, attention_channels=64, floor=FLOOR)
    net = Net(widths, flow, **solver)
    net.load_state_dict(ours.state_dict())
    return net


def epoch_of(model: nn.Module, train: Data, val: Data) -> Callable[[], torch.Tensor]:
    """Return a function that trains for one step, validates, and returns the validation logits."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    nodes = train.mask.nonzero().squeeze(1)  # once, since this is a host sync on a GPU
    labels = train.y[nodes]

    def epoch() -> torch.Tensor:
        model.train()
        loss = F.cross_entropy(model(train.x, train.edge_index)[nodes], labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            return model(val.x, val.edge_index)

    return epoch


def build(
    name: str, datamodule: GraphDataModule, solver: Solver, **options: float | str
) -> nn.Module:
    """Build the network of one of `PROGRAMS`; all have the same weights.

    Args:
        name: Name of the program.
        datamodule: The graph.
        solver: Solver of the package's network.
        options: The same solver as torchdiffeq's options, for the yardstick.
    """
    model = network(datamodule, solver)
    return straightforward(datamodule, model, **options) if name == YARDSTICK else model


def program(
    name: str,
    datamodule: GraphDataModule,
    solver: Solver,
    *,
    whole: bool = False,
    **options: float | str,
) -> Callable[[], torch.Tensor]:
    """Return a function that runs one epoch of one of `PROGRAMS`.

    Args:
        name: Name of the program.
        datamodule: The graph.
        solver: Solver of the package's network.
        whole: Train on the whole graph instead of the inductive views.
        options: The same solver as torchdiffeq's options, for the yardstick.
    """
    train, val = (datamodule.view("test" if whole else role) for role in ("train", "val"))
    epoch = epoch_of(build(name, datamodule, solver, **options), train, val)

    def under_backend() -> torch.Tensor:
        if name != YARDSTICK:
            set_backend(name)
        return epoch()

    return under_backend


def memory() -> None:
    """Print by how many MB training makes this process grow."""
    parser = argparse.ArgumentParser()
    parser.add_argument("dataset")
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--whole", action="store_true", help="train on the whole graph")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    datamodule = load(arguments.dataset)
    epoch = program(
        arguments.program, datamodule, ONE_STEP, whole=arguments.whole, method=ONE_STEP.method
    )
    with PeakGrowth() as grown:
        for _ in range(3):
            epoch()
    print(json.dumps(grown.megabytes))


if __name__ == "__main__":
    memory()
