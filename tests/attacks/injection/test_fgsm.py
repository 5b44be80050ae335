import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from robust_diffusion.attacks import FGSM, PGD, SPEIT, Attack, Budget, PerturbedGraph
from tests.attacks.contract import clean, graph, trained
from tests.attacks.graphs import mean_of_neighbours


def run(attack: Attack, limits: tuple[float, float] = (-1.0, 1.0), seed: int = 0) -> PerturbedGraph:
    generator = torch.Generator().manual_seed(seed)
    budget = Budget(5, 8, limits)
    return attack(trained(), clean(graph()), graph().index_test, budget, generator)


def injected(perturbed: PerturbedGraph) -> Tensor:
    return perturbed.x[perturbed.num_original_nodes :]


@pytest.mark.parametrize(
    ("attack", "length"), [(FGSM, "step_size"), (PGD, "step_size"), (SPEIT, "learning_rate")]
)
def test_a_step_is_the_sign_of_the_gradient(attack: type[Attack], length: str) -> None:
    start = run(attack(num_steps=0))
    new = injected(start).clone().requires_grad_()
    logits = trained()(torch.cat([graph().x, new]), start.edge_index)[graph().index_test]
    labels = trained()(graph().x, graph().edge_index)[graph().index_test].argmax(1)
    (gradient,) = torch.autograd.grad(F.cross_entropy(logits, labels), new)
    stepped = run(attack(num_steps=1, **{length: 0.03}))
    assert torch.equal(stepped.edge_index, start.edge_index)
    clear = gradient.abs() > (1e-5 if attack is SPEIT else 0)  # as far as Adam's epsilon allows
    assert clear.float().mean() > 0.9
    moved = (injected(stepped) - injected(start))[clear]
    rtol = 1e-2 if attack is SPEIT else 1e-5
    torch.testing.assert_close(moved, 0.03 * gradient.sign()[clear], rtol=rtol, atol=1e-7)


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


@pytest.mark.parametrize("attack", [FGSM, SPEIT])
@pytest.mark.parametrize(
    ("limits", "start"), [((-1.0, 1.0), 0.0), ((0.25, 0.9), 0.25), ((-0.9, -0.5), -0.5)]
)
def test_features_start_at_0_within_the_limits(
    limits: tuple[float, float], start: float, attack: type[Attack]
) -> None:
    assert torch.equal(injected(run(attack(num_steps=0), limits)), torch.full((5, 16), start))


def test_pgd_starts_at_random() -> None:
    first, other = (injected(run(PGD(num_steps=0), seed=seed)) for seed in (0, 1))
    assert first.std().item() == pytest.approx(0.1, rel=0.2)
    assert not torch.equal(first, other)


def test_they_draw_the_same_edges() -> None:
    assert torch.equal(run(FGSM(num_steps=0)).edge_index, run(PGD(num_steps=0)).edge_index)


@pytest.mark.parametrize(
    "attack", [FGSM(num_steps=3, step_size=9.0), SPEIT(learning_rate=9.0, num_steps=3)]
)
def test_steps_end_at_the_limits(attack: Attack) -> None:
    ends = injected(run(attack, (-0.25, 0.5)))
    assert set(ends.unique().tolist()) == {-0.25, 0.5}
