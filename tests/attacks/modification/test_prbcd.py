import copy
import subprocess
import sys
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from robust_diffusion.attacks import GRBCD, PRBCD, Budget, PerturbedGraph, SpentBudget, spent_budget
from robust_diffusion.attacks.modification.prbcd import LogProbabilities
from robust_diffusion.errors import AttackError, ConfigError
from tests.attacks import contract
from tests.attacks.contract import clean, graph, trained
from tests.attacks.graphs import mean_of_neighbours

Block = type[PRBCD] | type[GRBCD]
BUDGET = Budget(0, 0, (-1.0, 1.0), edge_ratio=0.2)
run = partial(contract.run, budget=BUDGET)


def spent(perturbed: PerturbedGraph) -> SpentBudget:
    return spent_budget(clean(graph()), perturbed)


def accuracy(perturbed: PerturbedGraph) -> float:
    targets = graph().index_test
    labels = trained()(graph().x, graph().edge_index).argmax(1)[targets]
    found = trained()(perturbed.x, perturbed.edge_index).argmax(1)[targets]
    return (found == labels).double().mean().item()


@pytest.mark.parametrize("attack", [PRBCD, GRBCD])
@pytest.mark.parametrize("loss", ["prob_margin", "tanh_margin", "margin", "masked"])
def test_every_loss_is_raised(attack: Block, loss: Any) -> None:
    perturbed = run(attack(num_steps=10, block_size=5000, loss=loss))
    assert accuracy(perturbed) < 1


@pytest.mark.parametrize("attack", [PRBCD, GRBCD])
def test_a_model_in_double_precision_can_be_attacked(attack: Block) -> None:
    data = Data(x=graph().x.double(), edge_index=graph().edge_index)
    made = attack(num_steps=2, block_size=5000)
    assert spent(run(made, model=copy.deepcopy(trained()).double(), data=data)).added_edges > 0


@pytest.mark.parametrize("attack", [PRBCD, GRBCD])
def test_a_complete_graph_can_be_attacked(attack: Block) -> None:
    n = 5
    pairs = torch.combinations(torch.arange(n)).T
    data = Data(x=torch.eye(n, 7), edge_index=torch.cat([pairs, pairs.flip(0)], 1))
    made = attack(num_steps=3, block_size=200)
    perturbed = run(
        made,
        model=mean_of_neighbours,
        data=data,
        targets=torch.arange(n),
        budget=replace(BUDGET, edge_ratio=1.0),
    )
    result = spent_budget(data, perturbed)
    assert result.added_edges == 0
    # PyG's attack searches more pairs than it flips, so one stays.
    assert result.removed_edges <= 9


@pytest.mark.parametrize("attack", [PRBCD, GRBCD])
def test_blocks_too_small_for_the_budget_are_refused(attack: Block) -> None:
    match = rf"attacks\.{attack.name}\.block_size=2: too few .*;"
    with pytest.raises(ConfigError, match=match):
        run(attack(block_size=2, num_steps=1), budget=replace(BUDGET, edge_ratio=0.5))


@pytest.mark.parametrize("attack", [PRBCD, GRBCD])
def test_a_loss_that_breaks_on_the_way_is_an_error(attack: Block) -> None:
    def breaks(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        logits = mean_of_neighbours(x, edge_index, edge_weight)
        return logits if edge_index.size(1) == graph().num_edges else logits * torch.nan

    with pytest.raises(AttackError, match=f"attack={attack.name}: .* not finite"):
        run(attack(num_steps=3, block_size=2000), model=breaks)


def test_other_errors_of_the_model_are_not_taken_for_a_small_block() -> None:
    def breaks(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if edge_index.size(1) != graph().num_edges:
            raise RuntimeError("out of luck")
        return mean_of_neighbours(x, edge_index, edge_weight)

    with pytest.raises(RuntimeError, match="out of luck"):
        run(PRBCD(num_steps=3, block_size=2000), model=breaks)


def test_log_probabilities_are_those_of_the_logits() -> None:
    x, edges = graph().x, graph().edge_index
    weight = torch.ones(edges.size(1))
    expected = F.log_softmax(trained()(x, edges, weight), 1)
    assert torch.equal(LogProbabilities(trained())(x, edges, weight), expected)


@pytest.mark.slow
def test_the_import_is_silent() -> None:
    code = "import warnings; warnings.simplefilter('error', UserWarning); " + (
        "import robust_diffusion.attacks.modification.prbcd as module; "
        "assert 'prbcd' in module.__name__"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
