"""Flags: signs that an accuracy under attack is no bound on a model's robustness.

Told here from a model's own predictions and from accuracies; `misled` looks at one attack. All that
can be raised is listed in `flag_codes.Code`. A check yields its flags, none where it finds nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import PerturbedGraph, seeded
from robust_diffusion.attacks.base import Classifier
from robust_diffusion.models.variants import with_solver
from robust_diffusion.robustness.flag_codes import OF_THE_NUMBER, Code
from robust_diffusion.robustness.solves import LARGEST_GROWTH
from robust_diffusion.robustness.subject import Task

Outdone = Literal["weaker_than_chance", "weaker_than_transfer"]

POINT = 0.01
"""Accuracy, in 0..1, below which a difference tells nothing."""

FINER = ("rk4", 4)
"""The solver that a PDE is tested by once more, and its steps for each step of its own."""


@dataclass(frozen=True)
class Flag:
    """One sign that an accuracy under attack is not a bound."""

    code: Code  # what programs go by
    detail: str  # the same in a line, with the figures

    def __str__(self) -> str:
        """The line."""
        return self.detail


def of_the_row(flags: Iterable[Flag], accuracy: float) -> list[Flag]:
    """The flags that count for a row of a table, each once."""
    return [flag for flag in dict.fromkeys(flags) if accuracy > 0 or flag.code in OF_THE_NUMBER]


def victim_flags(victim: nn.Module, task: Task, norm_growth: float | None = 0.0) -> Iterator[Flag]:
    """Signs in the tested model's own behaviour, which every accuracy of it depends on."""
    yield from stochastic(victim, *task.placed(task.graph))
    if norm_growth is None or norm_growth > LARGEST_GROWTH:
        factor = "without bound" if norm_growth is None else f"{norm_growth:.3g}-fold"
        text = f"the state's norm grows {factor} through a solve; more or shorter steps may hold it"
        yield Flag("diverged", text)


def prediction_flags(
    victim: nn.Module,
    task: Task,
    graph: Data | PerturbedGraph,
    logits: Float[Tensor, "t c"],
    seed: int,
) -> Iterator[Flag]:
    """Signs in the tested model's predictions on one graph: no numbers, or another solver's."""
    if broken := int((~logits.isfinite()).any(1).sum()):
        where = f"{broken} of {len(logits)} target nodes"
        yield Flag("logits_not_finite", f"the victim's logits are not finite at {where}")
    if (finer := with_solver(victim, FINER[0], refine=FINER[1])) is not None:
        name = f"{FINER[0]} of {FINER[1]} times the steps"
        by_finer = task.accuracy(task.logits_of(finer, graph, seed))
        yield from solvers_disagree({"own solver": task.accuracy(logits), name: by_finer})


def stochastic(
    model: Classifier, x: Float[Tensor, "m f"], edge_index: Int[Tensor, "2 e"]
) -> Iterator[Flag]:
    """A model in eval mode whose forward passes on one graph differ."""
    with torch.no_grad(), seeded(0):
        first, second = model(x, edge_index), model(x, edge_index)
    if not torch.equal(first.nan_to_num(), second.nan_to_num()):
        changed = 100 * float((first.argmax(1) != second.argmax(1)).float().mean())
        yield Flag("stochastic", f"two forward passes differ in {changed:.1f} % of the classes")


def solvers_disagree(accuracies: Mapping[str, float]) -> Iterator[Flag]:
    """An accuracy that depends on the solver by which the same network is tested."""
    (own, accuracy), *others = accuracies.items()
    name, other = max(others, key=lambda item: abs(item[1] - accuracy), default=(own, accuracy))
    if abs(other - accuracy) > POINT:
        text = f"{own} gives {100 * accuracy:.2f} %, {name} {100 * other:.2f} %"
        yield Flag("solvers_disagree", f"test solvers disagree: {text}")


def weaker_than(accuracy: float, other: float, code: Outdone) -> Iterator[Flag]:
    """An attack that a weaker adversary outdoes on the same model, both accuracies in 0..1."""
    # Chance is one draw of many, and a transferred attack has seen another model: any accuracy
    # below the attack's own shows that this one has not found what there is.
    if accuracy > other:
        name = code.removeprefix("weaker_than_")
        text = f"{100 * accuracy:.2f} % against {100 * other:.2f} %"
        yield Flag(code, f"weaker than {name}: {text}")
