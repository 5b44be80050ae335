"""What every injection attack under conf/attack keeps to."""

import pytest
import torch.nn.functional as F

from robust_diffusion.attacks import Attack, Budget, PerturbedGraph, spent_budget
from robust_diffusion.attacks.injection.features import neighbourhood
from tests.attacks.contract import (
    broken,
    clean,
    graph,
    harm,
    make,
    names,
    options,
    run,
    trained,
)

LIMITS = [(-0.04, 1.0), (0.2, 0.9), (-0.9, -0.2)]
NAMES = names("injection")
GRADIENT = sorted(set(NAMES) & set(names(need="feature_gradient")))
DISGUISED = [name for name in GRADIENT if "homophily" in options(name)]


@pytest.fixture(scope="module", params=NAMES)
def attack(request: pytest.FixtureRequest) -> Attack:
    return make(request.param)


@pytest.mark.parametrize(
    "budget",
    [
        *(Budget(3, 5, limits) for limits in LIMITS),
        *(Budget(*counts, (-0.5, 0.5)) for counts in ((1, 1), (7, 60), (11, 7))),
        *(Budget(5, 8, (-0.5, 0.5), max_injected_edges=total) for total in (0, 11, 99)),
    ],
)
def test_stays_within_budget_and_spends_it(attack: Attack, budget: Budget) -> None:
    perturbed = run(attack, budget=budget)
    assert not broken(attack, perturbed, budget)
    spent = spent_budget(clean(graph()), perturbed)
    assert spent.injected_nodes == budget.max_injected_nodes or budget.max_injected_edges == 0
    if budget.max_injected_edges is None:
        assert spent.injected_edges > 0
    else:  # which is shared out
        assert spent.injected_edges == sum(budget.injected_degrees)


def test_fewer_targets_than_edges_get_one_edge_each_of_a_new_node(attack: Attack) -> None:
    few = graph().index_test[:3]
    spent = spent_budget(clean(graph()), run(attack, targets=few))
    assert 0 < spent.max_edges_per_injected_node <= 3


def harm_of(name: str) -> tuple[float, float]:
    steps = {} if name == "random" else {"num_steps": 60}
    return harm(run(make(name, **steps), budget=Budget(20, 20, (-0.94, 0.94))))


@pytest.mark.parametrize("name", GRADIENT)
def test_does_more_harm_than_random_nodes(name: str) -> None:
    loss, errors = harm_of(name)
    random_loss, random_errors = harm_of("random")
    assert loss > random_loss
    assert errors > random_errors


def homophily(perturbed: PerturbedGraph) -> float:
    """Mean cosine similarity of injected nodes and their neighbours."""
    n = perturbed.num_original_nodes
    new = perturbed.x[n:]
    around = neighbourhood(perturbed.x[:n], perturbed.edge_index, new.size(0))
    return F.cosine_similarity(new, around).mean().item()


@pytest.mark.slow
@pytest.mark.parametrize("name", DISGUISED)
def test_homophily_is_raised_by_its_weight(name: str) -> None:
    budget = Budget(5, 6, (-0.94, 0.94))

    def similar(weight: float) -> float:
        return homophily(run(make(name, homophily=weight, num_steps=60), budget=budget))

    without, little, much = similar(0.0), similar(0.1), similar(1.0)
    assert without < little < 1
    assert much > without + 0.3


@pytest.mark.parametrize("name", ["fgsm", "speit"])
def test_the_loss_that_is_named_is_the_one_that_rises(name: str) -> None:
    labels = trained()(graph().x, graph().edge_index).argmax(1)[graph().index_test]

    def own_logit(attack: Attack) -> float:
        perturbed = run(attack)
        logits = trained()(perturbed.x, perturbed.edge_index)[graph().index_test]
        return logits.gather(1, labels[:, None]).mean().item()

    by_entropy, by_logit = (
        own_logit(make(name, loss=loss)) for loss in ("cross_entropy", "own_logit")
    )
    assert by_logit < by_entropy
