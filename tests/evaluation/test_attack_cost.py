"""What an attack costs is counted at the model, whatever the attack is."""

from typing import Any

import pytest
import torch
from torch import nn

from robust_diffusion import PGD, AutoInjection, Budget, evaluate
from robust_diffusion.attacks import PRBCD
from robust_diffusion.attacks.problem import Problem
from robust_diffusion.models import GCN, GCNSVD
from tests.drawn import CLASSES, FEATURES, drawn_data

DATA = drawn_data()
BUDGET = Budget(4, 5, edge_ratio=0.5)


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = GCN(FEATURES, 8, CLASSES)
        self.passes = 0

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        logits: torch.Tensor = self.model(x, edge_index)
        return logits


@pytest.mark.slow  # the checker of shapes looks at every pass
def test_every_forward_pass_of_an_attack_counts_and_no_other() -> None:
    counts = []
    for num_steps in (3, 13):
        torch.manual_seed(0)
        model = Counted()
        report = evaluate(model, DATA, attacks=PGD(num_steps=num_steps), budget=BUDGET)
        counts.append((model.passes, report["pgd"].effort["forwards"]))
        assert report.to_frame().forwards.tolist()[-1] == counts[-1][1]
    assert counts[1][0] - counts[0][0] == counts[1][1] - counts[0][1] == 10


class ByName(PGD):
    """Calls the model by the names of its arguments first."""

    def inject(self, problem: Problem, *rest: Any) -> Any:
        problem.model(x=problem.x, edge_index=problem.edge_index)
        return super().inject(problem, *rest)


def test_a_model_may_be_called_by_the_names_of_its_arguments() -> None:
    forwards = [
        evaluate(Counted(), DATA, attacks=of, budget=BUDGET)["pgd"].effort["forwards"]
        for of in (PGD(num_steps=2), ByName(num_steps=2))
    ]
    assert forwards[1] == forwards[0] + 1


def test_the_trace_falls_to_what_the_attack_reached_and_leaves_weighed_edges_out() -> None:
    torch.manual_seed(0)
    model = GCN(FEATURES, 8, CLASSES)
    report = evaluate(model, DATA, attacks=[AutoInjection(num_steps=8), PRBCD()], budget=BUDGET)
    for name in ("auto", "prbcd"):
        of = report[name]
        forwards, seconds, reached = zip(*of.effort["trace"], strict=True)
        assert list(forwards) == sorted(set(forwards))
        assert list(seconds) == sorted(seconds)
        assert list(reached) == sorted(set(reached), reverse=True)
        assert forwards[-1] <= of.effort["forwards"]
        assert reached[-1] == min(of.accuracy, report.clean_accuracy)


def test_passes_of_the_adaptive_form_count() -> None:
    torch.manual_seed(0)
    model = GCNSVD(FEATURES, 8, CLASSES)
    given = {"attacks": PGD(num_steps=5), "budget": BUDGET}
    found = [evaluate(model, DATA, threat=of, **given) for of in ("white_box", "adaptive")]
    assert found[0]["pgd"].effort["forwards"] == found[1]["pgd"].effort["forwards"] > 5
