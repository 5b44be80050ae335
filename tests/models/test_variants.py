from functools import partial

import pytest
import torch
from torch import nn

from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import Beltrami
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GCNSVD, BeltramiGuard
from robust_diffusion.models.variants import with_adjoint, with_gradient, with_solver
from tests.graphs import random_edges, random_signal
from tests.models.small import build_model

GUARDED = partial(
    BeltramiGuard,
    flow=partial(Beltrami, heads=2, attention_channels=6),
    solver=Solver("rk4", num_steps=2),
)


def by_weights(model: nn.Module) -> torch.Tensor | None:
    edge_index, weight = random_edges()
    loss = model(random_signal(), edge_index, weight.requires_grad_()).square().sum()
    return torch.autograd.grad(loss, weight, allow_unused=True)[0]


@pytest.mark.parametrize("cls", [partial(GCNSVD, rank=3), GUARDED], ids=["svd", "beltrami"])
def test_the_gradient_of_a_copy_is_switched_and_nothing_else(cls: type[nn.Module]) -> None:
    model, found = build_model(cls, gradient="detached"), []
    for gradient in ("exact", "straight_through"):
        variant = with_gradient(model, gradient)
        given = (random_signal(), random_edges()[0])
        assert torch.equal(variant(*given), model(*given))
        expected = by_weights(build_model(cls, gradient=gradient))
        assert expected is not None
        torch.testing.assert_close(by_weights(variant), expected)
        assert by_weights(model) is None
        found.append(expected)
    assert not torch.allclose(*found)


@pytest.mark.parametrize("adjoint", [False, True])
def test_the_derivative_of_a_copy_is_switched(adjoint: bool) -> None:
    model = build_model(GUARDED, solver=Solver("rk4", num_steps=2, adjoint=not adjoint))
    variant = with_adjoint(model, adjoint=adjoint)
    for new, old in zip(variant.layers, model.layers, strict=True):
        changed = {k for k, v in vars(new.solver).items() if v != vars(old.solver)[k]}
        assert changed == {"adjoint", "_watch"}
        assert new.solver.adjoint == adjoint


@pytest.mark.parametrize(
    ("own", "finer"),
    [({"num_steps": 2}, {"num_steps": 8}), ({"step_size": 0.5}, {"step_size": 0.125})],
)
def test_steps_stay_with_another_derivative_and_get_finer_with_another_method(
    own: dict[str, float], finer: dict[str, float]
) -> None:
    def steps(variant: nn.Module | None) -> list[dict[str, float]]:
        assert variant is not None
        solvers = [vars(layer.solver) for layer in variant.layers]
        names = ("num_steps", "step_size")
        return [{name: s[name] for name in names if s[name] is not None} for s in solvers]

    model = build_model(GUARDED, solver=Solver("euler", **own))
    assert steps(with_adjoint(model, adjoint=True)) == [own] * 3
    assert steps(with_solver(model, "rk4", refine=4)) == [finer] * 3


def test_a_solver_that_needs_the_adjoint_keeps_it() -> None:
    model = build_model(GUARDED, solver=Solver("scipy_solver", rtol=1e-3, atol=1e-3, adjoint=True))
    with pytest.raises(ConfigError, match=r"threat\.adjoint=false"):
        with_adjoint(model, adjoint=False)
