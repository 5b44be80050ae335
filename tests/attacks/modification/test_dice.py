import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks import DICE, Budget
from tests.attacks.contract import clean, graph, trained
from tests.attacks.modification.test_contract import flips


def run(ratio: float, delete_ratio: float, y: Tensor | None = None) -> Tensor:
    """The flipped pairs."""
    data = clean(graph())
    if y is not None:
        data.y = y
    budget = Budget(0, 0, (-1.0, 1.0), edge_ratio=ratio)
    generator = torch.Generator().manual_seed(0)
    attack = DICE(delete_ratio=delete_ratio)
    return flips(attack(trained(), data, graph().index_test, budget, generator))


def is_edge(pairs: Tensor) -> Tensor:
    n = graph().num_nodes
    src, dst = graph().edge_index
    return torch.isin(pairs[0] * n + pairs[1], src * n + dst)


@pytest.mark.parametrize("delete_ratio", [0.0, 0.5, 0.6, 1.0])
def test_deletes_inside_and_connects_outside(delete_ratio: float) -> None:
    labels = trained()(graph().x, graph().edge_index).argmax(1)
    flipped = run(0.3, delete_ratio)
    there, same = is_edge(flipped), labels[flipped[0]] == labels[flipped[1]]
    assert torch.equal(there, same)
    assert there.sum() == int(flipped.size(1) * delete_ratio)


def test_what_cannot_be_deleted_is_connected() -> None:
    apart = torch.arange(graph().num_nodes)  # every node of a class of its own
    flipped = run(0.3, 1.0, apart)
    assert flipped.size(1) > 0
    assert not is_edge(flipped).any()


def test_a_single_class_leaves_nothing_to_connect() -> None:
    one_class = torch.zeros(graph().num_nodes, dtype=torch.long)
    flipped = run(0.3, 0.5, one_class)
    assert is_edge(flipped).all()
    assert flipped.size(1) > 0
    assert run(0.3, 0.0, one_class).size(1) == 0


def test_by_hand() -> None:
    # 0 - 1 inside a class, 1 - 2 across; target 1.
    data = Data(
        x=torch.zeros(4, 3),
        edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
        y=torch.tensor([0, 0, 1, 1]),
    )
    budget = Budget(0, 0, (-1.0, 1.0), edge_ratio=1.0)
    perturbed = DICE(delete_ratio=0.5)(
        lambda x, e: x, data, torch.tensor([1]), budget, torch.Generator().manual_seed(0)
    )
    # The one edge inside goes, and the one pair across that is not there comes.
    assert sorted(map(tuple, perturbed.edge_index.T.tolist())) == [(1, 2), (1, 3), (2, 1), (3, 1)]
