import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from robust_diffusion import open_dataset
from robust_diffusion.commands.leaderboard import _trained
from robust_diffusion.robustness.zoo import Zoo, load_model
from tests.results.leaderboard.reports import records_of, report
from tests.zoo import trained

Cli = Callable[..., Any]

MODULE = """
from robust_diffusion.robustness.zoo import build_recorded
from tests.zoo import CONFIG


def build(in_channels, out_channels):
    return build_recorded(CONFIG, in_channels, out_channels, where="mine")


def other(channels):
    return None
"""


@pytest.fixture
def given(zoo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records and zoo; a module of the user's on the path."""
    lines = [json.dumps(line) for line in records_of(Zoo.open(zoo_folder), 0.9)]
    (tmp_path / "records.jsonl").write_text("\n".join(lines))
    (tmp_path / "my_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return ["--records", "records.jsonl", "--zoo", str(zoo_folder)]


def rows() -> dict[str, dict[str, Any]]:
    """Rows of the one board, by model."""
    (board,) = json.loads(Path("build/leaderboard/leaderboard.json").read_text())["boards"]
    return {row["model"]: row for row in board["rows"]}


@pytest.mark.slow
def test_a_declared_training_is_repeated(cli: Cli, given: list[str]) -> None:
    cell = "model=gcn seed=3 training.max_epochs=2 trainer=cpu"
    model = _trained(cell, open_dataset("synthetic"))
    report(Path("own"), model)
    named = [*given, "--report=own", f"--training={cell}"]
    assert cli("leaderboard", *named).status == 0
    (row,) = (row for row in rows().values() if row["variant"] == "own")
    assert (row["state"] in ("ranked", "not a bound"), row["sources"]) == (
        True,
        [f"report own, trained by {cell}"],
    )
    other = cell.replace("seed=3", "seed=4")
    assert cli("leaderboard", *named[:-1], f"--training={other}").status == 0
    (row,) = (row for row in rows().values() if row["variant"] == "own")
    assert (row["state"], row["rank"]) == ("not checked", None)


@pytest.mark.slow
def test_reports_are_entered_and_refused(
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
    named = [f"--report={name}" for name in ("good", "bad", "own")]
    loaded = ["--model=my_module.build", "--weights=own.safetensors", "--no-attack"]
    outcome = cli("leaderboard", *given, *named, *loaded)
    assert outcome.status == 1
    (line,) = [line for line in outcome.err.splitlines() if line.startswith("refused")]
    assert line.startswith("refused: bad: clean accuracy claimed 2.00 %")
    states = {row["model"].split()[0]: row["state"] for row in rows().values()}
    assert states == {"mlp": "control", "gcn": "ranked", "GCN": "claimed"}
    assert rows()["gcn"]["sources"][1].startswith("report good: ")
    assert Path("build/leaderboard/leaderboard.html").is_file()
    assert cli("leaderboard", *given, "--report=evil").status == 0
    (row,) = (row for name, row in rows().items() if name.startswith("evil.Model"))
    assert (row["state"], row["rank"]) == ("not checked", None)


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--out", "here"], 0, ""),
        (["--model=my_module.build"], 2, "--model"),  # and no weights
        (["--zoo", "nowhere"], 1, "nowhere/index.json"),
        (["--model=no_module.Mine", "--weights=weights.pt", "--report=own"], 1, "no_module.Mine"),
        (["--model=my_module.other", "--weights=weights.pt", "--report=own"], 1, "my_module.other"),
        (["--model=my_module.build", "--weights=weights.pt", "--report=own"], 1, "weights.pt"),
    ],
)
def test_a_model_or_zoo_that_cannot_be_had_is_named(
    cli: Cli, given: list[str], options: list[str], status: int, said: str
) -> None:
    Path("weights.pt").write_bytes(b"\x80\x04N.")
    if "--report=own" in options:
        report(Path("own"), trained(open_dataset("synthetic"), epochs=1))
    outcome = cli("leaderboard", *given, *options)
    assert outcome.status == status
    assert said in outcome.err
    assert status or len(list(Path("here").iterdir())) == 2
