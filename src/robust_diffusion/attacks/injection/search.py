"""A search for harmful features that asks the model for predictions alone."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from robust_diffusion.attacks.climb import Found, Harm
from robust_diffusion.attacks.injection.starts import runner_up
from robust_diffusion.attacks.problem import Problem

SCALES = (1.0, 4.0, 16.0)
"""Factors of a real node's features, before they are clamped to the limits."""


def search(
    problem: Problem,
    edge_index: Int[Tensor, "2 e"],
    rows: Sequence[Int[Tensor, "_"]],
    limits: tuple[float, float],
    num_steps: int,
    generator: torch.Generator,
) -> Found:
    """Random search among the features of real nodes, made larger.

    It starts at nodes of the targets' second best class. Each step gives some of the new nodes, at
    first half of them and at last one, the features of other nodes of the graph, and keeps what is
    more harmful. Where an attack by gradient does less, the model hides its gradients.

    Args:
        problem: The attacked model and its targets.
        edge_index: Edges, those of the new nodes included.
        rows: Targets of each new node.
        limits: Smallest and largest feature.
        num_steps: Forward passes after the first, at least 0.
        generator: CPU generator.
    """
    harm = Harm(problem, problem.fixed_rows.followed_by, edge_index, "tanh_margin")
    k, n = len(rows), problem.x.size(0)
    with torch.no_grad():
        harm(runner_up(problem, rows, limits, generator).clamp(*limits))
        for step in range(num_steps):
            assert harm.best is not None
            if harm.best.right == 0:
                break
            count = max(1, round(k / 2 * (1 - step / num_steps)))
            chosen = torch.randperm(k, generator=generator)[:count].to(edge_index.device)
            donors = torch.randint(n, (count,), generator=generator).to(edge_index.device)
            scale = SCALES[int(torch.randint(len(SCALES), (), generator=generator))]
            new = harm.best.features.clone()
            new[chosen] = (problem.x[donors] * scale).clamp(*limits)
            harm(new)
    assert harm.best is not None
    return harm.best
