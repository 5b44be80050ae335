from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.records.records import encoded
from robust_diffusion.robustness.zoo import Zoo
from tests.results.leaderboard.reports import records_of

Cli = Callable[..., Any]


@pytest.fixture
def given(zoo_folder: Path, tmp_path: Path) -> list[str]:
    """Records of the zoo's model and an MLP."""
    lines = encoded(records_of(Zoo.open(zoo_folder), 0.9))
    (tmp_path / "records.jsonl").write_bytes(b"".join(lines))
    return ["--records", "records.jsonl"]


@pytest.mark.parametrize("budget", ["50", "5xa", "5x-4", "5x4x3", ""])
def test_a_budget_of_another_form_is_named(cli: Cli, budget: str) -> None:
    outcome = cli("leaderboard", f"--budget={budget}")
    assert outcome.status == 2
    assert outcome.err.endswith(f"--budget: expected NODESxEDGES such as 50x50, got {budget}\n")


def test_the_board_of_chosen_budgets(cli: Cli, given: list[str]) -> None:
    assert cli("leaderboard", *given, "--budget=5x20", "--out=here").status == 0
    assert len(list(Path("here").iterdir())) == 2
    assert "0 boards: no row" in cli("leaderboard", *given, "--budget=1x2").out
