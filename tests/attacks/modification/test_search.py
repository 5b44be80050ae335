import pytest
import torch
from torch import Tensor

from robust_diffusion.attacks.modification.base import flipped
from robust_diffusion.attacks.modification.search import search
from robust_diffusion.attacks.problem import Problem
from tests.attacks.contract import clean, graph, trained

NONE = torch.empty(2, 0, dtype=torch.long)


def problem() -> Problem:
    return Problem("any", trained(), clean(graph()), graph().index_test)


def found(steps: int, pairs: Tensor = NONE, most: int = 30) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return search(problem(), graph().x, pairs, most, steps, generator)


@pytest.mark.parametrize("most", [1, 7, 30])
def test_flips_touch_targets_and_are_no_more_than_allowed(most: int) -> None:
    pairs = flipped(graph().edge_index, found(20, most=most), 200)
    assert 0 < pairs.size(1) <= most
    assert torch.isin(pairs, graph().index_test).any(0).all()


def test_more_passes_do_more_harm() -> None:
    right = [problem().right(graph().x, found(steps)) for steps in (0, 10, 80)]
    assert right[0] > right[1] > right[2]
    assert right[2] < 45


def test_it_starts_from_the_flips_given_and_never_loses_them() -> None:
    before = found(20)
    pairs = flipped(graph().edge_index, before, 200)
    assert torch.equal(flipped(graph().edge_index, found(0, pairs), 200), pairs)
    after = found(20, pairs)
    assert problem().right(graph().x, after) <= problem().right(graph().x, before)


def test_edges_are_both_added_and_removed() -> None:
    pairs = flipped(graph().edge_index, found(40), 200)
    there = graph().edge_index[0] * 200 + graph().edge_index[1]
    removed = torch.isin(pairs[0] * 200 + pairs[1], there)
    assert removed.any()
    assert not removed.all()
