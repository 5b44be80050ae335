"""Flags that a victim's own predictions raise, on the clean and the attacked graphs."""

import logging
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import seeded
from robust_diffusion.evaluation.flags import Flag, solvers_disagree, stochastic
from robust_diffusion.evaluation.solves import LARGEST_GROWTH
from robust_diffusion.models.variants import with_solver

log = logging.getLogger(__name__)

FINER = ("rk4", 4)
"""The solver that a PDE is tested by once more, and its steps for each step of its own."""


def with_victim_flags(
    found: Mapping[str, Sequence[Flag]],
    victim: nn.Module,
    *,
    clean: Data,
    graphs: Mapping[str, Mapping[str, Data]],
    not_finite: Mapping[str, int],
    norm_growth: float | None = 0.0,
    seed: int,
) -> dict[str, list[Flag]]:
    """The attacks' flags, and those of the victim: logits, solver, and draws at test time.

    Args:
        found: Per attack, its own flags.
        victim: The model under test, in eval mode.
        clean: The clean graph.
        graphs: Per attack, its test graphs by name, each with the `mask` of the target nodes.
        not_finite: Per test graph, the target nodes whose logits are not finite.
        norm_growth: Of the victim's state through a solve on the clean graph, the largest of its
            layers; `None` if it is not finite.
        seed: Of a model that samples, in the comparison of solvers.

    Returns:
        Flags by attack; those of the clean graph under `victim`. An attack without any is left out.
    """
    flags = {name: list(found.get(name, [])) for name in graphs}
    finer = with_solver(victim, FINER[0], refine=FINER[1])
    for name, of in graphs.items():
        for graph, data in of.items():
            if broken := not_finite.get(graph, 0):
                total = int(data.mask.sum())
                text = f"the victim's logits are not finite at {broken} of {total} target nodes"
                flags[name].append(Flag("logits_not_finite", text))
            if finer is not None:
                accuracies = {
                    "own solver": _accuracy(victim, data, seed),
                    f"{FINER[0]} of {FINER[1]} times the steps": _accuracy(finer, data, seed),
                }
                if flag := solvers_disagree(accuracies):
                    flags[name].append(flag)
    assert clean.x is not None
    assert clean.edge_index is not None
    device = _device(victim, clean.x)
    if flag := stochastic(victim, clean.x.to(device), clean.edge_index.to(device)):
        flags["victim"] = [flag]
    if norm_growth is None or norm_growth > LARGEST_GROWTH:
        factor = "without bound" if norm_growth is None else f"{norm_growth:.3g}-fold"
        text = f"the state's norm grows {factor} through a solve; more or shorter steps may hold it"
        flags.setdefault("victim", []).append(Flag("diverged", text))
    for name, own in flags.items():
        for flag in own[len(found.get(name, [])) :]:
            log.warning("%s: %s", name, flag)
    return {name: own for name, own in flags.items() if own}


def _accuracy(model: nn.Module, data: Data, seed: int) -> float:
    assert data.x is not None
    assert data.edge_index is not None
    device = _device(model, data.x)
    with torch.no_grad(), seeded(seed):
        predicted = model(data.x.to(device), data.edge_index.to(device)).argmax(1).cpu()
    right = predicted[data.mask] == data.y[data.mask]
    return float(right.double().mean())


def _device(model: nn.Module, x: Tensor) -> torch.device:
    return next(model.parameters(), x).device
