from collections.abc import Callable
from typing import Any

import pytest

from tests.paper.records import archived
from tests.results.worst_cases import record

Cli = Callable[..., Any]


@pytest.mark.parametrize("budget", ["50", "5xa", "5x-4", "5x4x3", ""])
def test_a_budget_of_another_form_is_named(cli: Cli, budget: str) -> None:
    outcome = cli("leaderboard", f"--budget={budget}")
    assert outcome.status == 2
    assert outcome.err.endswith(f"--budget: expected NODESxEDGES such as 50x50, got {budget}\n")


def test_the_board_of_chosen_budgets(cli: Cli) -> None:
    records = [record(model, budget=(5, 20), auto=0.4) for model in ("gcn", "mlp")]
    given = ("leaderboard", "--records", archived(*records))
    numbers = cli(*given, "--budget=5x20", "--format=csv").out
    assert numbers.startswith("dataset,features,split,variant,model,control,rank,reason,seeds,")
    (row, *_) = cli(*given).table
    assert (row["rank"], row["model"], row["5x20"]) == ("control", "MLP", "40.00")
    assert "no run" in cli(*given, "--budget=1x2").out
