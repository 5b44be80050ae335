"""What every injection attack under conf/attack keeps to."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import coalesce

from robust_diffusion.attacks import Attack, Budget, PerturbedGraph, spent_budget
from robust_diffusion.attacks.injection.features import neighbourhood
from robust_diffusion.errors import ConfigError
from tests.attacks.contract import clean, graph, make, names, options, run, trained

LIMITS = [(-0.04, 1.0), (0.2, 0.9), (-0.9, -0.2)]
NAMES = names("injection")
GRADIENT = sorted(set(NAMES) & set(names(need="feature_gradient")))
DISGUISED = [name for name in GRADIENT if "homophily" in options(name)]


@pytest.fixture(scope="module", params=NAMES)
def attack(request: pytest.FixtureRequest) -> Attack:
    return make(request.param)


@pytest.fixture(scope="module")
def perturbed(attack: Attack) -> PerturbedGraph:
    return run(attack)


def new_edges(perturbed: PerturbedGraph) -> Tensor:
    """Edges from an injected node."""
    return perturbed.edge_index[:, perturbed.edge_index[0] >= perturbed.num_original_nodes]


def check_within(perturbed: PerturbedGraph, budget: Budget, targets: Tensor) -> None:
    injected = perturbed.x[perturbed.num_original_nodes :]
    edges = new_edges(perturbed)
    low, high = torch.tensor(budget.feature_limits)  # as float32 has them
    degrees = edges[0].bincount(minlength=perturbed.x.size(0))[perturbed.num_original_nodes :]
    assert injected.size(0) <= budget.max_injected_nodes
    assert all(own <= most for own, most in zip(degrees, budget.injected_degrees, strict=True))
    assert low <= injected.min() <= injected.max() <= high
    # `auto` links new nodes, too.
    assert (torch.isin(edges[1], targets) | (edges[1] >= perturbed.num_original_nodes)).all()


@pytest.mark.parametrize("limits", LIMITS)
def test_stays_within_the_feature_limits(attack: Attack, limits: tuple[float, float]) -> None:
    budget = Budget(3, 5, limits)
    check_within(run(attack, budget=budget), budget, graph().index_test)


@pytest.mark.parametrize(("nodes", "edges"), [(1, 1), (7, 60), (11, 7)])
def test_stays_within_the_counts(attack: Attack, nodes: int, edges: int) -> None:
    budget = Budget(nodes, edges, (-0.5, 0.5))
    perturbed = run(attack, budget=budget)
    check_within(perturbed, budget, graph().index_test)
    spent = spent_budget(clean(graph()), perturbed)
    assert spent.injected_nodes == nodes
    assert spent.injected_edges > 0


@pytest.mark.parametrize("total", [0, 11, 99])
def test_a_total_of_edges_is_shared_out(attack: Attack, total: int) -> None:
    budget = Budget(5, 8, (-0.5, 0.5), max_injected_edges=total)
    perturbed = run(attack, budget=budget)
    check_within(perturbed, budget, graph().index_test)
    assert spent_budget(clean(graph()), perturbed).injected_edges == min(40, total)


def test_the_original_graph_comes_first_and_unchanged(perturbed: PerturbedGraph) -> None:
    n = graph().num_nodes
    assert perturbed.num_original_nodes == n
    assert torch.equal(perturbed.x[:n], graph().x)
    original = perturbed.edge_index[:, (perturbed.edge_index < n).all(0)]
    assert torch.equal(coalesce(original), coalesce(graph().edge_index))
    assert original.size(1) == graph().num_edges


def test_fewer_targets_than_edges_get_one_edge_each_of_a_new_node(attack: Attack) -> None:
    few = graph().index_test[:3]
    spent = spent_budget(clean(graph()), run(attack, targets=few))
    assert 0 < spent.max_edges_per_injected_node <= 3
    with pytest.raises(ConfigError, match="target nodes: none"):
        run(attack, targets=few[:0])


def harm(perturbed: PerturbedGraph) -> tuple[float, float]:
    """Loss and share of errors against the model's own clean predictions."""
    targets = graph().index_test
    labels = trained()(graph().x, graph().edge_index).argmax(1)[targets]
    logits = trained()(perturbed.x, perturbed.edge_index)[targets]
    return F.cross_entropy(logits, labels).item(), (logits.argmax(1) != labels).double().mean()


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
