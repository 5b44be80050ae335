"""Flags that a victim's own predictions raise, on the clean and the attacked graphs."""

import logging
from collections.abc import Mapping, Sequence

from torch import nn
from torch_geometric.data import Data

from robust_diffusion.attacks import PerturbedGraph
from robust_diffusion.evaluation.flags import Flag, of_the_row, solvers_disagree, stochastic
from robust_diffusion.evaluation.solves import LARGEST_GROWTH
from robust_diffusion.evaluation.subject import Task
from robust_diffusion.models.variants import with_solver

log = logging.getLogger(__name__)

FINER = ("rk4", 4)
"""The solver that a PDE is tested by once more, and its steps for each step of its own."""


def with_victim_flags(
    found: Mapping[str, Sequence[Flag]],
    victim: nn.Module,
    task: Task,
    graphs: Mapping[str, Sequence[Data | PerturbedGraph]],
    *,
    norm_growth: float | None = 0.0,
    seed: int,
) -> dict[str, list[Flag]]:
    """The flags of each attack, those of the victim included: logits, solver, random draws.

    Args:
        found: Per attack, its own flags; under `victim`, those that it has already.
        victim: The model under test, in eval mode, on the task's device.
        task: The clean graph and the target nodes.
        graphs: Per attack, its test graphs.
        norm_growth: Of the victim's state through a solve on the clean graph, the largest of its
            layers; `None` if it is not finite.
        seed: Of a model that samples, in the comparison of solvers.

    Returns:
        Flags by attack; those of the clean graph under `victim`. An attack without any is left out.
    """
    own = list(found.get("victim", []))
    x, edge_index = (task.graph[key].to(task.device) for key in ("x", "edge_index"))
    if flag := stochastic(victim, x, edge_index):
        own.append(flag)
    if norm_growth is None or norm_growth > LARGEST_GROWTH:
        factor = "without bound" if norm_growth is None else f"{norm_growth:.3g}-fold"
        text = f"the state's norm grows {factor} through a solve; more or shorter steps may hold it"
        own.append(Flag("diverged", text))
    rows = {"victim": own}
    finer = with_solver(victim, FINER[0], refine=FINER[1])
    for name, of in graphs.items():
        raised, lowest = [], 1.0
        for graph in of:
            logits = task.logits_of(victim, graph, seed)
            accuracy = task.accuracy(logits)
            lowest = min(lowest, accuracy)
            if broken := int((~logits.isfinite()).any(1).sum()):
                where = f"{broken} of {len(logits)} target nodes"
                text = f"the victim's logits are not finite at {where}"
                raised.append(Flag("logits_not_finite", text))
            if finer is not None:
                by_finer = task.accuracy(task.logits_of(finer, graph, seed))
                solvers = {
                    "own solver": accuracy,
                    f"{FINER[0]} of {FINER[1]} times the steps": by_finer,
                }
                if flag := solvers_disagree(solvers):
                    raised.append(flag)
        for flag in raised:
            log.warning("%s: %s", name, flag)
        rows[name] = of_the_row([*found.get(name, []), *raised, *own], lowest)
    for flag in own:
        log.warning("victim: %s", flag)
    return {name: flags for name, flags in rows.items() if flags}
