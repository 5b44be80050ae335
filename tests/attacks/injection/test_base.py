import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.utils import to_dense_adj

from robust_diffusion.attacks.injection import base
from robust_diffusion.attacks.injection.base import connect, draw_targets
from robust_diffusion.attacks.injection.features import neighbourhood, similarity


def test_connect_appends_both_directions() -> None:
    before = torch.tensor([[0, 1], [1, 0]])
    targets = [torch.tensor([1, 0]), torch.tensor([], dtype=torch.long), torch.tensor([1])]
    after = connect(before, targets, 7)
    new = [(7, 1), (7, 0), (9, 1)]
    expected = [(0, 1), (1, 0), *new, *((v, u) for u, v in new)]
    assert [tuple(edge) for edge in after.T.tolist()] == expected
    assert before.tolist() == [[0, 1], [1, 0]]


@given(
    degrees=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    at_once=st.integers(1, 100),
    seed=st.integers(0, 5),
)
def test_targets_are_drawn_as_if_all_at_once(degrees: list[int], at_once: int, seed: int) -> None:
    targets = torch.arange(9) * 2 + 5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "DRAWN_AT_ONCE", at_once)
        rows = draw_targets(targets, degrees, torch.Generator().manual_seed(seed))
    drawn = torch.rand(len(degrees), 9, generator=torch.Generator().manual_seed(seed))
    for row, order, count in zip(rows, drawn.argsort(1), degrees, strict=True):
        assert torch.equal(row, targets[order[:count]])


def test_neighbourhood_is_the_normalised_sum_over_the_neighbours() -> None:
    # Nodes 0 - 1 - 2 and 3; new 4 at 0 and 1, new 5 alone, new 6 at 3.
    half = torch.tensor([(0, 1), (1, 2), (4, 0), (4, 1), (6, 3)]).T
    edges = torch.cat([half, half.flip(0)], 1)
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    dense = to_dense_adj(edges, max_num_nodes=7)[0]
    scale = dense.sum(1).clamp(min=1).rsqrt()
    expected = scale[4:, None] * dense[4:, :4] @ (scale[:4, None] * x)
    torch.testing.assert_close(neighbourhood(x, edges, 3), expected)


def test_similarity_is_the_cosine() -> None:
    generator = torch.Generator().manual_seed(0)
    new, around = torch.randn(2, 20, 5, generator=generator)
    torch.testing.assert_close(similarity(new, around), F.cosine_similarity(new, around))


def test_similarity_has_a_bounded_gradient_at_0() -> None:
    around = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    new = torch.zeros(2, 2, requires_grad=True)
    value = similarity(new, around)
    assert value.tolist() == [0, 0]
    (gradient,) = torch.autograd.grad(value.sum(), new)
    # The neighbourhood's direction, over a tenth of its length.
    torch.testing.assert_close(gradient, torch.tensor([[0.6, 0.8], [0.0, 0.0]]) / 0.5)


def test_similarity_is_differentiable_as_often_as_needed() -> None:
    generator = torch.Generator().manual_seed(0)
    new, around = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda free: similarity(free, around), new.requires_grad_())
