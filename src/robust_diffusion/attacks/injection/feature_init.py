"""Features that injected nodes start from."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from robust_diffusion.attacks.problem import Problem

StartName = Literal["zero", "uniform", "small_normal", "real", "runner_up"]
_Rows = Sequence[Int[Tensor, "_"]]
_Limits = tuple[float, float]
Start = Callable[[Problem, _Rows, _Limits, Generator], Tensor]


def zero(problem: Problem, rows: _Rows, limits: _Limits, generator: Generator) -> Tensor:
    """Zeros."""
    return problem.x.new_zeros(len(rows), problem.x.size(1))


def uniform(problem: Problem, rows: _Rows, limits: _Limits, generator: Generator) -> Tensor:
    """Uniform between the limits."""
    low, high = limits
    drawn = torch.rand(len(rows), problem.x.size(1), generator=generator, dtype=torch.float32)
    return low + (high - low) * drawn.to(problem.x)


def small_normal(problem: Problem, rows: _Rows, limits: _Limits, generator: Generator) -> Tensor:
    """Normal, the standard deviation a tenth of the limits' largest magnitude."""
    low, high = limits
    drawn = torch.randn(len(rows), problem.x.size(1), generator=generator, dtype=torch.float32)
    return drawn.to(problem.x) * max(-low, high) / 10


def real(problem: Problem, rows: _Rows, limits: _Limits, generator: Generator) -> Tensor:
    """Those of nodes of the graph, drawn uniformly."""
    drawn = torch.randint(problem.x.size(0), (len(rows),), generator=generator)
    return problem.x[drawn.to(problem.x.device)]


def runner_up(problem: Problem, rows: _Rows, limits: _Limits, generator: Generator) -> Tensor:
    """Those of nodes of the class that the new node's targets take for second best.

    That is the class, other than the targets' most frequent one, with the highest mean
    probability at the targets; the node of the graph is drawn by its probability of that class.
    """
    if not any(row.numel() for row in rows):
        return real(problem, rows, limits, generator)
    probability = problem.clean_logits.softmax(1)
    classes = []
    for row in rows:
        mean = probability[row].mean(0) if row.numel() else probability.mean(0)
        mean[problem.all_labels[row].mode().values if row.numel() else 0] = -1
        classes.append(mean.argmax())
    weights = probability.T[torch.stack(classes)].double().cpu() + 1e-12
    drawn = torch.multinomial(weights, 1, generator=generator).squeeze(1)
    return problem.x[drawn.to(problem.x.device)]


STARTS: Mapping[str, Start] = {
    "zero": zero,
    "uniform": uniform,
    "small_normal": small_normal,
    "real": real,
    "runner_up": runner_up,
}
