import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from robust_diffusion import open_dataset
from robust_diffusion.commands.submit import _trained
from robust_diffusion.records.records import encoded
from robust_diffusion.robustness.zoo import Zoo, load_model
from tests.results.leaderboard.reports import records_of, report
from tests.zoo import trained

Cli = Callable[..., Any]

MODULE = """
from robust_diffusion.robustness.zoo import build_recorded
from tests.zoo import CONFIG


def build(in_channels, out_channels):
    return build_recorded(CONFIG, in_channels, out_channels, where="mine")
"""


@pytest.fixture
def given(zoo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records and zoo; a module of the user's on the path."""
    lines = encoded(records_of(Zoo.open(zoo_folder), 0.9))
    (tmp_path / "records.jsonl").write_bytes(b"".join(lines))
    (tmp_path / "my_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return ["--records", "records.jsonl", "--zoo", str(zoo_folder)]


def rows() -> dict[str, dict[str, Any]]:
    (board,) = json.loads(Path("build/leaderboard/leaderboard.json").read_text())["boards"]
    return {row["model"]: row for row in board["rows"]}


@pytest.mark.slow
def test_a_declared_training_is_repeated(cli: Cli, given: list[str]) -> None:
    cell = "model=gcn seed=3 training.max_epochs=2 trainer=cpu"
    model = _trained(cell, open_dataset("synthetic"))
    report(Path("own"), model)
    named = ["own", *given, "--to=submissions.jsonl", "--training"]
    outcome = cli("submit", *named, cell.replace("seed=3", "seed=4"))
    assert (outcome.status, "gives other weights" in outcome.err) == (1, True)
    assert not Path("submissions.jsonl").exists()
    outcome = cli("submit", *named, cell)
    assert outcome.status == 0
    assert re.match(
        r"synthetic GCN \w{8}: (rank 1|not a bound, \w+), .* above the MLP; 5x20: ", outcome.out
    )
    assert cli("leaderboard", *given[:2], "--records=submissions.jsonl").status == 0
    (row,) = (row for row in rows().values() if row["variant"] == "own")
    assert row["state"] in ("ranked", "not a bound")
    assert row["sources"] == ["report own", f"trained by {cell}"]


@pytest.mark.slow
def test_reports_are_recorded_and_refused(
    cli: Cli, given: list[str], zoo_folder: Path, tmp_path: Path
) -> None:
    model = load_model("gcn", "synthetic", directory=zoo_folder)
    own = trained(open_dataset("synthetic"), epochs=5)
    for name, of, claims in (
        ("good", model, {}),
        ("bad", model, {"clean_accuracy": 0.02}),
        ("own", own, {}),
        ("evil", own, {"model": "evil.Model"}),  # what a report names is not imported
    ):
        path = report(Path(name), of) / "report.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | claims))
    (tmp_path / "evil.py").write_text("raise SystemExit(9)")
    save_file(own.state_dict(), "own.safetensors")
    loaded = ["--model=my_module.build", "--weights=own.safetensors", "--no-attack"]
    outcome = cli("submit", "good", "bad", "own", *given, *loaded, "--to=submissions.jsonl")
    assert outcome.status == 1
    (line,) = [line for line in outcome.err.splitlines() if line.startswith("refused")]
    assert line.startswith("refused: bad: clean accuracy claimed 2.00 %")
    assert "published records; report good\n" in outcome.out
    assert cli("leaderboard", *given[:2], "--records=submissions.jsonl").status == 0
    states = {row["model"].split()[0]: row["state"] for row in rows().values()}
    assert states == {"mlp": "control", "gcn": "ranked", "GCN": "claimed"}
    assert rows()["gcn"]["sources"] == ["published records", "report good"]
    outcome = cli("submit", "evil", *given)
    assert (outcome.status, "no zoo entry has its weights" in outcome.err) == (1, True)


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--model=my_module.build"], 2, "--model"),  # and no weights
        (["--zoo", "nowhere"], 1, "nowhere/index.json"),
        (["--model=no_module.Mine", "--weights=weights.pt"], 1, "no_module.Mine"),
        (["--model=my_module.build", "--weights=weights.pt"], 1, "weights.pt"),
    ],
)
def test_a_model_or_zoo_that_cannot_be_had_is_named(
    cli: Cli, given: list[str], options: list[str], status: int, said: str
) -> None:
    Path("weights.pt").write_bytes(b"\x80\x04N.")
    report(Path("own"), trained(open_dataset("synthetic"), epochs=1))
    outcome = cli("submit", "own", *given, *options)
    assert outcome.status == status
    assert said in outcome.err


@pytest.mark.parametrize("budget", ["50", "5xa", "5x-4", "5x4x3", ""])
def test_a_budget_of_another_form_is_named(cli: Cli, budget: str) -> None:
    outcome = cli("leaderboard", f"--budget={budget}")
    assert outcome.status == 2
    assert outcome.err.endswith(f"--budget: expected NODESxEDGES such as 50x50, got {budget}\n")


def test_the_board_of_chosen_budgets(cli: Cli, given: list[str]) -> None:
    assert cli("leaderboard", *given[:2], "--budget=5x20", "--out=here").status == 0
    assert len(list(Path("here").iterdir())) == 2
    assert "0 boards: no row" in cli("leaderboard", *given[:2], "--budget=1x2").out
