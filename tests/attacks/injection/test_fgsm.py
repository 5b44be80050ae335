import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from robust_diffusion.attacks import FGSM, PGD, Attack, Budget, PerturbedGraph
from tests.attacks.contract import clean, graph, trained
from tests.attacks.graphs import mean_of_neighbours


def run(attack: Attack, limits: tuple[float, float] = (-1.0, 1.0), seed: int = 0) -> PerturbedGraph:
    generator = torch.Generator().manual_seed(seed)
    budget = Budget(5, 8, limits)
    return attack(trained(), clean(graph()), graph().index_test, budget, generator)


def injected(perturbed: PerturbedGraph) -> Tensor:
    return perturbed.x[perturbed.num_original_nodes :]


@pytest.mark.parametrize("attack", [FGSM, PGD])
def test_a_step_is_the_sign_of_the_gradient(attack: type[FGSM]) -> None:
    start = run(attack(num_steps=0))
    new = injected(start).clone().requires_grad_()
    logits = trained()(torch.cat([graph().x, new]), start.edge_index)[graph().index_test]
    labels = trained()(graph().x, graph().edge_index)[graph().index_test].argmax(1)
    (gradient,) = torch.autograd.grad(F.cross_entropy(logits, labels), new)
    stepped = run(attack(num_steps=1, step_size=0.03))
    assert torch.equal(stepped.edge_index, start.edge_index)
    assert gradient.all()
    torch.testing.assert_close(injected(stepped), injected(start) + 0.03 * gradient.sign())


def test_by_hand_on_two_nodes() -> None:
    # Target 0 of class 0 (its first feature is larger) gets 0.3 times what a new node has, so the
    # loss falls with the new node's feature 0 and rises with the others.
    x = torch.zeros(1, 7)
    x[0, 0] = 1.0
    data = clean(graph()).__class__(x=x, edge_index=torch.empty(2, 0, dtype=torch.long))
    attack = FGSM(num_steps=4, step_size=0.125)
    budget = Budget(1, 1, (-0.25, 1.0))
    perturbed = attack(
        mean_of_neighbours, data, torch.tensor([0]), budget, torch.Generator().manual_seed(0)
    )
    assert perturbed.edge_index.tolist() == [[1, 0], [0, 1]]
    assert perturbed.x[1].tolist() == [-0.25, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("limits", "start"), [((-1.0, 1.0), 0.0), ((0.25, 0.9), 0.25), ((-0.9, -0.5), -0.5)]
)
def test_fgsm_starts_at_0_as_far_as_the_limits_allow(
    limits: tuple[float, float], start: float
) -> None:
    assert torch.equal(injected(run(FGSM(num_steps=0), limits)), torch.full((5, 16), start))


def test_pgd_starts_at_random() -> None:
    first, other = (injected(run(PGD(num_steps=0), seed=seed)) for seed in (0, 1))
    assert first.std().item() == pytest.approx(0.1, rel=0.2)
    assert not torch.equal(first, other)


def test_they_draw_the_same_edges() -> None:
    assert torch.equal(run(FGSM(num_steps=0)).edge_index, run(PGD(num_steps=0)).edge_index)


def test_steps_end_at_the_limits() -> None:
    ends = injected(run(FGSM(num_steps=3, step_size=9.0), (-0.25, 0.5)))
    assert set(ends.unique().tolist()) == {-0.25, 0.5}
