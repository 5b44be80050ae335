"""Seconds of one training epoch of several networks, under the arithmetic in effect."""

import json
import sys

import torch
from measure import by_turns
from networks import ONE_STEP, epoch_of, load, network

from robust_diffusion.models import GAT, MLP
from robust_diffusion.system.arithmetic import set_up_arithmetic


def main() -> None:
    """Print one line of JSON: the seconds of every round, by network."""
    dataset, repeat = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    set_up_arithmetic()
    datamodule = load(dataset)
    views = datamodule.view("train"), datamodule.view("val")
    networks = {"Beltrami": network(datamodule, ONE_STEP)}
    for model in (GAT, MLP):
        torch.manual_seed(0)
        networks[model.__name__] = model(datamodule.num_features, 64, datamodule.num_classes)
    runs = {name: epoch_of(built, *views) for name, built in networks.items()}
    print(json.dumps(by_turns(runs, repeat=repeat)))


if __name__ == "__main__":
    main()
