"""Runs of threat=poisoning: the victim is trained anew on what an attack has made."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from robust_diffusion.attacks import SPEIT, Budget, RandomFlip
from robust_diffusion.attacks.modification.base import ModificationAttack
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation import BlackBox, Poisoning
from robust_diffusion.evaluation.load import ModelTraining, Recipe
from robust_diffusion.experiment.evaluate_run import RunResult
from robust_diffusion.records.store import ArtifactStore
from tests.models.small import gcn

Make = Callable[..., Any]
BUDGET = Budget(0, 0, edge_ratio=0.5)


@pytest.fixture
def served(make_datamodule: Make) -> Make:
    return partial(make_datamodule, transductive=True, difficulty="full")


class Kept(RandomFlip):
    """Keeps what it is told, and what it makes of it."""

    def __call__(self, victim, task, budget, generator):  # type: ignore[no-untyped-def]
        self.task, self.predicted = task, victim.clean_logits.argmax(1)
        self.made = super().__call__(victim, task, budget, generator)
        return self.made


@pytest.fixture
def run(
    evaluate_in: Make, served: Make, make_fit: Make, tmp_path: Path
) -> Callable[..., RunResult]:
    """A run of a GCN; keyword arguments replace its parts."""

    def measured(**parts: Any) -> RunResult:
        threat = Poisoning({"gcn": gcn}, make_fit(max_epochs=30))
        given = {"datamodule": served(), "threat": threat, "attacks": {"kept": Kept()}} | parts
        return evaluate_in(tmp_path, fit=make_fit(max_epochs=30), budget=BUDGET, seed=3, **given)

    return measured


def test_the_victim_is_trained_from_scratch_on_the_attacked_graph_and_tested_there(
    run: Callable[..., RunResult], served: Make, make_fit: Make, tmp_path: Path
) -> None:
    datamodule, attack = served(), Kept()
    result = run(datamodule=datamodule, attacks={"kept": attack})
    graph, n = datamodule.graph, datamodule.graph.num_nodes
    # Every pair may be flipped, and the limit is a share of all edges.
    assert attack.task.targets.tolist() == list(range(n))
    spent = result.spent["kept"]["gcn"]
    flips = int(0.5 * graph.edge_index.size(1) / 2)
    assert spent["added_edges"] + spent["removed_edges"] == flips
    assert result.flags == {}
    # The attacker knows the classes of the train nodes, and elsewhere what its surrogate predicts.
    train = graph.index_train
    assert torch.equal(attack.task.graph.index_train, train)
    assert torch.equal(attack.task.all_labels[train], graph.y[train])
    assert not torch.equal(attack.task.all_labels, graph.y)
    knowing = Kept()
    run(
        threat=Poisoning({"gcn": gcn}, make_fit(max_epochs=30), attacker_knows="labels"),
        attacks={"kept": knowing},
    )
    assert torch.equal(knowing.task.all_labels, graph.y)

    poisoned = served().poisoned(attack.made.x, attack.made.edge_index)
    training = ModelTraining(poisoned, ArtifactStore(tmp_path / "other"), 3, tmp_path / "anew")
    recipe = Recipe(gcn, make_fit(max_epochs=30), {})
    anew = training("victim", recipe, description="anew").model
    view = poisoned.view("test")
    right = (anew(view.x, view.edge_index).argmax(1) == view.y)[view.mask]
    assert result.accuracy["kept"] == pytest.approx(float(right.double().mean()))
    evasion = run(threat=BlackBox({"gcn": gcn}, make_fit(max_epochs=30)))
    assert evasion.accuracy["clean"] == result.accuracy["clean"]
    assert evasion.accuracy["kept"] != result.accuracy["kept"]
    assert set(result.seconds) - set(evasion.seconds) == {"victim on kept"}
    assert run(datamodule=served()).reused == ["victim", "kept"]


class Changing(ModificationAttack):
    """Changes features, which a victim is then trained on, too, and no edge."""

    needs = frozenset()
    name = "changing"

    def modify(self, victim, task, budget, generator):  # type: ignore[no-untyped-def]
        return -task.x, task.edge_index


def test_a_broken_budget_is_told_and_an_injection_refused(run: Callable[..., RunResult]) -> None:
    assert "budget_overspent" in run(attacks={"changing": Changing()}).flags["changing"]
    with pytest.raises(ConfigError, match=r"^attack=speit: [^\n]*$"):
        run(attacks={"speit": SPEIT()})


def test_a_typed_cell_is_retrained(cli: Callable[..., Any], tiny_clean: list[str]) -> None:
    given = [*tiny_clean[:-1], "data.normalize=null", "data.transductive=true", "model=gcn"]
    given = [f"+{one}" if one.startswith("data.") else one for one in given]
    given += ["attacks.metattack.num_epochs=3", "logger=none"]
    outcome = cli(*given, "threat=poisoning", "attack=[random_flip,metattack]")
    assert outcome.status == 0, outcome.err
    (record,) = outcome.records
    assert (record.threat, record.surrogates) == ("poisoning", ["gcn"])
    assert set(record.accuracy) == {"clean", "random_flip", "metattack"}
    assert "retrained on each attacked graph" in outcome.out
