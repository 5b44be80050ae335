from typing import Any

import pytest
import torch

from robust_diffusion.attacks import Budget, GradientInjection, spent_budget
from robust_diffusion.attacks.climb import climb
from robust_diffusion.attacks.injection.edges import Candidates
from robust_diffusion.attacks.injection.gradient_injection import exchanged_rows
from robust_diffusion.attacks.injection.recipe import Recipe
from robust_diffusion.attacks.injection.sharing import SHARINGS
from robust_diffusion.attacks.injection.starts import STARTS
from robust_diffusion.attacks.losses import LOSSES
from robust_diffusion.attacks.problem import Problem
from robust_diffusion.attacks.steps import RULES
from robust_diffusion.errors import ConfigError
from tests.attacks.contract import clean, graph, run, same, trained
from tests.graphs import without_type_checks

BUDGET = Budget(8, 8, (-0.94, 0.94))
EVERY = [
    *({"loss": name} for name in LOSSES),
    *({"start": name} for name in STARTS),
    *({"edges": name} for name in SHARINGS),
    *({"rule": name} for name in RULES),
    {"restarts": 2},
]


def right(**options: Any) -> int:
    """Targets that the model still classifies as on the clean graph."""
    perturbed = run(GradientInjection(**options), budget=BUDGET)
    problem = Problem("any", trained(), clean(graph()), graph().index_test)
    return problem.right(perturbed.x, perturbed.edge_index)


@pytest.mark.parametrize("choice", EVERY, ids=str)
def test_every_choice_spends_the_budget_and_does_harm(choice: dict[str, Any]) -> None:
    perturbed = run(GradientInjection(num_steps=16, **choice), budget=BUDGET)
    spent = spent_budget(clean(graph()), perturbed)
    assert (spent.injected_nodes, spent.injected_edges) == (8, 64)
    assert spent.feature_range is not None
    assert -0.9401 < spent.feature_range[0] < spent.feature_range[1] < 0.9401
    assert right(num_steps=16, **choice) <= 50 < right(num_steps=0, start="zero")


def test_choices_change_the_result() -> None:
    plain = run(GradientInjection(num_steps=3), budget=BUDGET)
    others: list[dict[str, Any]] = [
        {"loss": "tanh_margin"},
        {"start": "uniform"},
        {"edges": "equal"},
        {"rule": "sign"},
        {"step_size": 0.05},
    ]
    for other in others:
        assert not same(run(GradientInjection(num_steps=3, **other), budget=BUDGET), plain)


def test_more_steps_and_restarts_never_do_less_harm() -> None:
    assert right(num_steps=0) >= right(num_steps=5) >= right(num_steps=20)
    assert right(num_steps=5) >= right(num_steps=5, restarts=3)


def test_the_best_step_is_kept() -> None:
    """Steps that are far too long end worse than where they have been."""
    problem = Problem("any", trained(), clean(graph()), graph().index_test)
    rows = [graph().index_test[:20]] * 4
    edges = Candidates(problem, torch.zeros(204, 16), problem.edge_index, 4, None).all_edges
    start = STARTS["uniform"](problem, rows, (-1.0, 1.0), torch.Generator().manual_seed(0))
    seen = [
        climb(
            problem,
            problem.fixed_rows.followed_by,
            edges,
            start,
            Recipe(step_size=9.0),
            (-1.0, 1.0),
            n,
        )
        for n in range(6)
    ]
    assert [found.right for found in seen] == sorted((f.right for f in seen), reverse=True)
    best = seen[-1]
    x = torch.cat([problem.x, best.features])
    assert problem.right(x, edges) == best.right


def test_exchanged_edges_keep_the_degrees() -> None:
    problem = Problem("any", trained(), clean(graph()), graph().index_test)
    rows = [graph().index_test[:5], graph().index_test[5:12]]
    x = torch.cat([problem.x, torch.full((2, 16), 0.9)])
    found = exchanged_rows(problem, rows, x)
    assert [row.numel() for row in found] == [5, 7]
    assert any(set(a.tolist()) != set(b.tolist()) for a, b in zip(rows, found, strict=True))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("loss", "hinge"),
        ("start", "ones"),
        ("edges", "all"),
        ("rule", "newton"),
        ("step_size", 0.0),
        ("num_steps", -1),
        ("restarts", 0),
    ],
)
def test_a_bad_value_is_refused(key: str, value: Any) -> None:
    with (
        without_type_checks(),
        pytest.raises(ConfigError, match=f"attacks.gradient_injection.{key}={value}: "),
    ):
        GradientInjection(**{key: value})
