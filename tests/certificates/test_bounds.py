import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.stats import binomtest

from robust_diffusion.certificates.bounds import class_bounds, clopper_pearson, worst_case


@pytest.mark.parametrize("count", [0, 3, 20])
def test_clopper_pearson_is_exact(count: int) -> None:
    lower, upper = clopper_pearson(np.array([count]), 20, 0.01)
    expected = binomtest(count, 20).proportion_ci(0.98, method="exact")
    np.testing.assert_allclose([lower[0], upper[0]], [expected.low, expected.high], atol=1e-12)


def test_class_bounds_share_alpha_among_the_classes() -> None:
    selection = torch.tensor([[0, 10, 0], [4, 3, 3]])
    votes = torch.tensor([[20, 70, 10], [40, 30, 30]])
    bounds = class_bounds(selection, votes, 0.03)
    lower, upper = clopper_pearson(np.array([[20, 70, 10], [40, 30, 30]]), 100, 0.01)
    assert bounds.predicted.tolist() == [1, 0]
    assert bounds.lower.tolist() == [lower[0, 1], lower[1, 0]]
    assert bounds.upper.tolist() == [upper[0, 0], upper[1, 1]]
    assert bounds.abstained.tolist() == [False, True]


def test_the_other_classes_have_no_more_than_the_named_one_leaves() -> None:
    bounds = class_bounds(torch.tensor([[1, 0]]), torch.tensor([[99, 1]]), 0.01)
    assert bounds.upper == pytest.approx(1 - bounds.lower)


def test_bounds_of_a_binomial_are_wrong_as_rarely_as_they_say() -> None:
    draws = np.random.default_rng(0).binomial(50, 0.7, size=20_000)
    lower, upper = clopper_pearson(draws, 50, 0.05)
    assert 0.02 < (lower > 0.7).mean() <= 0.05
    assert 0.02 < (upper < 0.7).mean() <= 0.05


def test_the_worst_case_is_the_optimum_of_the_linear_program() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        clean, attacked = generator.dirichlet(np.ones(6), size=2)
        clean[0], attacked[1] = 0.0, 0.0
        clean, attacked = clean / clean.sum(), attacked / attacked.sum()
        p, q = generator.uniform(0.5, 1), generator.uniform(0, 0.5)
        given = {"bounds": [(0, 1)] * 6}
        least = linprog(attacked, A_ub=-clean[None], b_ub=[-p], **given).fun
        largest = -linprog(-attacked, A_ub=clean[None], b_ub=[q], **given).fun
        found = worst_case(clean, attacked, np.array([p]), np.array([q]))
        np.testing.assert_allclose([found[0][0], found[1][0]], [least, largest], atol=1e-9)
