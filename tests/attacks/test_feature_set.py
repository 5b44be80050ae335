"""Features that a budget allows injected nodes: the projection, its gradient, and its users."""

from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks import Budget
from robust_diffusion.attacks.audit import audit
from robust_diffusion.attacks.base import PerturbedGraph
from robust_diffusion.attacks.feature_set import feature_set
from robust_diffusion.errors import AttackError, ConfigError
from robust_diffusion.models import GCN
from tests.attacks.contract import clean, make, names, run
from tests.attacks.graphs import nan_gradient, small_graph, trained_gcn

WORDS = 5
FORMS: dict[str, dict[str, Any]] = {
    "binary": {"features": "binary", "max_words": WORDS},
    "binary, any number": {"features": "binary"},
    "frequencies": {"features": "frequencies"},
    "frequencies of few words": {"features": "frequencies", "max_words": WORDS},
}


def words() -> Tensor:
    """A bag of words: 16 of which a node holds about 5."""
    return (small_graph().x > 0.4).float()


@cache
def graph(form: str) -> Data:
    """The small graph with words, or their frequencies."""
    data = small_graph()
    data.x = words()
    if form.startswith("frequencies"):
        data.x[data.x.sum(1) == 0, 0] = 1
        data.x = data.x / data.x.sum(1, keepdim=True)
    return data


@cache
def trained(form: str) -> GCN:
    return trained_gcn(graph(form))


def budget(form: str) -> Budget:
    return Budget(6, 10, **FORMS[form]).resolve(graph(form).x)


def codes(perturbed: Any, form: str) -> set[str]:
    data, allowed = graph(form), {"max_injected_nodes": 6, "max_edges_per_injected_node": 10}
    allowed |= FORMS[form]
    found = audit(data, perturbed, kind="injection", target_nodes=data.index_test, **allowed)
    return {violation.code for violation in found}


@pytest.mark.parametrize("form", ["binary", "frequencies", "frequencies of few words"])
@pytest.mark.parametrize("name", names("injection"))
def test_every_injection_keeps_the_form(name: str, form: str) -> None:
    data = graph(form)
    perturbed = run(make(name), model=trained(form), data=clean(data), budget=budget(form))
    assert len(perturbed.x) == len(data.x) + 6
    assert not codes(perturbed, form)


@pytest.mark.parametrize("form", ["binary", "frequencies", "frequencies of few words"])
def test_a_gradient_that_is_not_finite_is_named_within_every_form(form: str) -> None:
    with pytest.raises(AttackError, match=r"^attack=pgd: [^\n]*not finite"):
        run(make("pgd"), model=nan_gradient, data=clean(graph(form)), budget=budget(form))


def with_row(form: str, row: Tensor) -> PerturbedGraph:
    """The clean graph with one new node."""
    data = graph(form)
    n, target = len(data.x), int(data.index_test[0])
    new = torch.tensor([[n, target], [target, n]])
    return PerturbedGraph(torch.cat([data.x, row[None]]), torch.cat([data.edge_index, new], 1), n)


@pytest.mark.parametrize(
    ("form", "count", "value", "expected"),
    [
        ("binary", WORDS, 1.0, set()),
        ("binary", 0, 1.0, set()),
        ("binary", WORDS + 1, 1.0, {"max_words"}),
        ("binary", 1, 0.5, {"third_value"}),
        ("frequencies", 4, 0.25, set()),
        ("frequencies", 4, 0.26, {"row_sums"}),
        ("frequencies", 0, 0.0, {"row_sums"}),
        ("frequencies of few words", 8, 0.125, {"max_words"}),
    ],
)
def test_the_auditor_checks_the_form(
    form: str, count: int, value: float, expected: set[str]
) -> None:
    row = torch.zeros(16)
    row[:count] = value
    assert codes(with_row(form, row), form) == expected


@pytest.mark.parametrize("form", FORMS)
@given(seed=st.integers(0, 2**16))
def test_the_projection_is_the_nearest_point_and_stays_there(form: str, seed: int) -> None:
    allowed = feature_set(budget(form))
    generator = torch.Generator().manual_seed(seed)
    x, others = torch.rand(2, 30, 16, generator=generator)
    near = allowed.nearest(x)
    torch.testing.assert_close(allowed.nearest(near), near, rtol=0, atol=1e-6)
    assert not codes_of_rows(near, form)
    # No other point of the set is nearer.
    candidates = allowed.nearest(others)
    assert ((near - x).norm(dim=1) <= (candidates - x).norm(dim=1) + 1e-6).all()


def codes_of_rows(rows: Tensor, form: str) -> set[str]:
    return set().union(*(codes(with_row(form, row), form) for row in rows[:3]))


@pytest.mark.parametrize("form", FORMS)
def test_the_extreme_is_farthest_along_a_direction(form: str) -> None:
    allowed = feature_set(budget(form))
    direction, others = torch.randn(2, 50, 16, generator=torch.Generator().manual_seed(0))
    best, candidates = allowed.extreme(direction), allowed.nearest(others.sigmoid())
    assert ((best * direction).sum(1) >= (candidates * direction).sum(1) - 1e-6).all()


def test_only_the_best_words_rise() -> None:
    """The gradient is above 0 for as many words as fit, even if all of them do harm."""
    allowed = feature_set(budget("binary"))
    x = torch.zeros(1, 16, requires_grad=True)
    slope = torch.arange(1.0, 17.0)[None]
    (rises,) = torch.autograd.grad((allowed.exact(x) * slope).sum(), x)
    assert (rises > 0).nonzero()[:, 1].tolist() == list(range(16 - WORDS, 16))


@pytest.mark.parametrize("form", FORMS)
def test_the_limits_are_those_of_the_form(form: str) -> None:
    assert budget(form).limits == (0, 1)
    with pytest.raises(ConfigError, match=r"^budget\.feature_limits=[^\n]*; use null"):
        Budget(6, 10, (0.0, 0.5), **FORMS[form]).resolve(graph(form).x)
    with pytest.raises(ConfigError, match=r"^budget\.features=[^\n]*: expected [^\n]*; use"):
        Budget(6, 10, **FORMS[form]).resolve(small_graph().x)
    with pytest.raises(ConfigError, match=r"^budget\.max_words=3: "):
        Budget(6, 10, max_words=3)
