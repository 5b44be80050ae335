from functools import partial
from importlib import import_module
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.functional import cosine_similarity

from robust_diffusion.attacks import (
    FGSM,
    PGD,
    SPEIT,
    Attack,
    Budget,
    GradientInjection,
    PerturbedGraph,
    spent_budget,
)
from robust_diffusion.attacks.feature_set import FeatureSet
from robust_diffusion.attacks.gradient_ascent import RULES, StepRule, climb
from robust_diffusion.attacks.injection.base import STARTS
from robust_diffusion.attacks.injection.candidate_edges import Candidates
from robust_diffusion.attacks.injection.edge_allocation import SHARINGS
from robust_diffusion.attacks.losses import LOSSES
from tests.attacks import contract
from tests.attacks.contract import clean, graph, run, trained, victim_and_task

BUDGET = Budget(8, 8, (-0.94, 0.94))
EVERY = [
    *({"loss": name} for name in LOSSES),
    *({"start": name} for name in STARTS),
    *({"edges": name} for name in SHARINGS),
    *({"rule": name} for name in RULES),
    {"restarts": 2},
]


def right(perturbed: PerturbedGraph) -> int:
    """Targets that the model still classifies as on the clean graph."""
    return contract.right(perturbed)


def test_nodes_of_zeros_do_no_harm() -> None:
    assert right(run(GradientInjection(num_steps=0, start="zero"), budget=BUDGET)) > 50


@pytest.mark.parametrize("choice", EVERY, ids=str)
def test_every_choice_spends_the_budget_and_does_harm(choice: dict[str, Any]) -> None:
    perturbed = run(GradientInjection(num_steps=16, **choice), budget=BUDGET)
    spent = spent_budget(clean(graph()), perturbed)
    assert (spent.injected_nodes, spent.injected_edges) == (8, 64)
    assert -0.9401 < spent.feature_range[0] < spent.feature_range[1] < 0.9401
    assert right(perturbed) <= 50


def test_the_best_step_is_kept() -> None:
    """Steps that are far too long end worse than where they have been."""
    victim, task = victim_and_task()
    rows = [graph().index_test[:20]] * 4
    edges = Candidates(victim, task, torch.zeros(204, 16), task.edge_index, 4, None).all_edges
    start = STARTS["uniform"](
        victim, task, rows, Budget(feature_limits=(-1.0, 1.0)), torch.Generator().manual_seed(0)
    )
    seen = [
        climb(
            victim,
            task,
            victim.with_rows,
            edges,
            start,
            StepRule(step_size=9.0),
            FeatureSet(-1.0, 1.0),
            n,
        )
        for n in range(6)
    ]
    assert [found.right for found in seen] == sorted((f.right for f in seen), reverse=True)
    best = seen[-1]
    x = torch.cat([task.x, best.features])
    with torch.no_grad():
        assert task.right(victim(x, edges)) == best.right


attacked = partial(run, budget=Budget(5, 8, (-1.0, 1.0), scale_steps=False))


def injected(perturbed: PerturbedGraph) -> Tensor:
    return perturbed.x[perturbed.num_original_nodes :]


@pytest.mark.parametrize(
    ("attack", "length"), [(FGSM, "step_size"), (PGD, "step_size"), (SPEIT, "learning_rate")]
)
def test_a_step_is_the_sign_of_the_gradient(attack: type[Attack], length: str) -> None:
    start = attacked(attack(num_steps=0))
    new = injected(start).clone().requires_grad_()
    logits = trained()(torch.cat([graph().x, new]), start.edge_index)[graph().index_test]
    labels = trained()(graph().x, graph().edge_index)[graph().index_test].argmax(1)
    (gradient,) = torch.autograd.grad(F.cross_entropy(logits, labels), new)
    stepped = attacked(attack(num_steps=1, **{length: 0.03}))
    assert torch.equal(stepped.edge_index, start.edge_index)
    clear = gradient.abs() > (1e-5 if attack is SPEIT else 0)  # as far as Adam's epsilon allows
    assert clear.float().mean() > 0.9
    moved = (injected(stepped) - injected(start))[clear]
    rtol = 1e-2 if attack is SPEIT else 1e-5
    torch.testing.assert_close(moved, 0.03 * gradient.sign()[clear], rtol=rtol, atol=1e-7)


def test_gradient_injection_custom_objective() -> None:
    """The tutorial's, on a GCN that drops edges between unlike nodes."""
    adaptive: type[SPEIT] = import_module("alike").Alike

    def guarded(x: Tensor, edge_index: Tensor) -> Tensor:
        alike = cosine_similarity(x[edge_index[0]], x[edge_index[1]]) > 0.2
        return trained()(x, edge_index[:, alike])

    def right(attack: SPEIT) -> int:
        perturbed = run(attack, model=guarded, budget=Budget(12, 6, (-0.94, 0.94)))
        return contract.right(perturbed, guarded)

    assert right(adaptive(num_steps=40)) < right(SPEIT(num_steps=40))
