import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks import Budget
from robust_diffusion.attacks.injection.sharing import SHARINGS, deal
from robust_diffusion.attacks.problem import Problem
from tests.attacks.contract import clean, graph, trained


def share(name: str, degrees: list[int], seed: int = 0, *, targets: int = 60) -> list[Tensor]:
    problem = Problem("any", trained(), clean(graph()), graph().index_test[:targets])
    state = (problem.x, problem.edge_index)
    return SHARINGS[name](problem, state, degrees, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", SHARINGS)
@pytest.mark.parametrize("degrees", [[5, 5, 5], [60] * 4, [7, 6, 0], [1], [0, 0], [9] * 30])
def test_each_node_gets_its_number_of_distinct_targets(name: str, degrees: list[int]) -> None:
    rows = share(name, degrees)
    got = [row.numel() for row in rows]
    assert got == degrees or (name == "apart" and max(got) < max(degrees) == 60)
    for row in rows:
        assert row.unique().numel() == row.numel()
        assert torch.isin(row, graph().index_test).all()


@pytest.mark.parametrize("name", ["drawn", "equal", "classes", "apart", "tdgia"])
def test_random_shares_differ_from_seed_to_seed(name: str) -> None:
    first, again, other = (torch.cat(share(name, [10] * 4, seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=9))
def test_equal_shares_differ_by_one_edge_at_most(degrees: list[int]) -> None:
    chosen = torch.cat(share("equal", degrees, targets=12))
    used = torch.tensor([int((chosen == target).sum()) for target in graph().index_test[:12]])
    assert used.max() - used.min() <= 1


def test_classes_put_targets_of_one_class_together() -> None:
    labels = trained()(graph().x, graph().edge_index).argmax(1)

    def classes_of(name: str) -> float:
        rows = share(name, [6] * 10)
        return sum(labels[row].unique().numel() for row in rows) / len(rows)

    assert classes_of("classes") < 2.5 < classes_of("equal")


def test_the_largest_class_has_nodes_of_its_own() -> None:
    labels = trained()(graph().x, graph().edge_index).argmax(1)
    largest = labels[graph().index_test].mode().values
    shares = [(labels[row] == largest).float().mean().item() for row in share("apart", [6] * 10)]
    assert set(shares) == {0.0, 1.0}


def test_classes_cover_every_target_once_where_there_is_an_edge_for_each() -> None:
    targets = graph().index_test
    degrees = Budget(7, 60, max_injected_edges=targets.numel()).injected_degrees
    rows = share("classes", degrees)
    assert torch.cat(rows).sort().values.equal(targets.sort().values)


def test_sequential_takes_the_targets_nearest_to_being_lost() -> None:
    """Lead of the label over the next class: 0 is sure, 1 and 3 are not, 2 is lost already."""
    x = torch.tensor([[9.0, 0], [1.0, 0], [0, 1.0], [2.0, 0], [5.0, 0]])
    y = torch.zeros(5, dtype=torch.long)
    data = Data(x=x, edge_index=torch.empty(2, 0, dtype=torch.long), y=y)
    problem = Problem("any", lambda x, _: x, data, torch.arange(5))
    state = (problem.x, problem.edge_index)
    (row,) = SHARINGS["sequential"](problem, state, [3], torch.Generator())
    assert sorted(row.tolist()) == [1, 3, 4]


def test_a_dealt_list_begins_anew_after_its_end() -> None:
    rows = deal(torch.tensor([7, 8, 9]), [2, 0, 3])
    assert [row.tolist() for row in rows] == [[7, 8], [], [9, 7, 8]]
