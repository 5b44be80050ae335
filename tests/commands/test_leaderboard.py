import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from robust_diffusion import open_dataset
from robust_diffusion.commands.leaderboard import _trained
from robust_diffusion.robustness.zoo import Zoo, load_model
from tests.results.leaderboard.reports import record, records_of, report
from tests.zoo import small_zoo, trained

Cli = Callable[..., Any]

MODULE = """
from robust_diffusion.robustness.zoo import build_recorded
from tests.zoo import CONFIG


def build(in_channels, out_channels):
    return build_recorded(CONFIG, in_channels, out_channels, where="mine")


def other(channels):
    return None
"""


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    return small_zoo(tmp_path_factory.mktemp("zoo"))


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of no zoo's model."""
    model = trained(open_dataset("synthetic"), epochs=1)
    return report(tmp_path_factory.mktemp("reports") / "mine", model)


@pytest.fixture
def given(zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records and zoo; a module of the user's on the path."""
    lines = [json.dumps(line) for line in records_of(zoo, 0.9)]
    (tmp_path / "records.jsonl").write_text("\n".join(lines))
    (tmp_path / "my_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return ["--records", "records.jsonl", "--zoo", str(zoo.directory)]


def rows() -> dict[str, dict[str, Any]]:
    """Rows of the one board, by model."""
    (board,) = json.loads(Path("build/leaderboard/leaderboard.json").read_text())["boards"]
    return {row["model"]: row for row in board["rows"]}


@pytest.mark.slow
def test_reports_are_entered_and_refused(cli: Cli, given: list[str], zoo: Zoo) -> None:
    model = load_model("gcn", "synthetic", directory=zoo.directory)
    report(Path("good"), model)
    bad = report(Path("bad"), model) / "report.json"
    claims = json.loads(bad.read_text())
    claims["clean_accuracy"] = 0.02
    bad.write_text(json.dumps(claims))
    own = trained(open_dataset("synthetic"), epochs=5)
    report(Path("own"), own)
    save_file(own.state_dict(), "own.safetensors")
    named = [f"--report={name}" for name in ("good", "bad", "own")]
    loaded = ["--model=my_module.build", "--weights=own.safetensors", "--no-attack"]
    outcome = cli("leaderboard", *given, *named, *loaded)
    assert outcome.status == 1
    (line,) = [line for line in outcome.err.splitlines() if line.startswith("refused")]
    found = f"{100 * zoo.entries[0].clean_accuracy:.2f}"
    assert line == f"refused: bad: clean accuracy claimed 2.00 %, found {found} %"
    states = {row["model"].split()[0]: row["state"] for row in rows().values()}
    assert states == {"mlp": "control", "gcn": "ranked", "GCN": "claimed"}
    assert rows()["gcn"]["sources"][1].startswith("report good: ")
    assert Path("build/leaderboard/leaderboard.html").is_file()


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


def test_without_a_report(cli: Cli, given: list[str]) -> None:
    outcome = cli("leaderboard", *given, "--out", "here")
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.splitlines()[-1] == "1 board: 1 ranked, 1 control"
    assert {path.name for path in Path("here").iterdir()} == {
        "leaderboard.html",
        "leaderboard.json",
    }


def test_what_a_report_names_is_not_imported(
    cli: Cli, given: list[str], mine: Path, tmp_path: Path
) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit(9)")
    folder = Path(shutil.copytree(mine, "mine"))
    claims = json.loads((folder / "report.json").read_text())
    claims["model"] = "evil.Model"
    (folder / "report.json").write_text(json.dumps(claims))
    assert cli("leaderboard", *given, "--report", "mine").status == 0
    (row,) = (row for name, row in rows().items() if name.startswith("evil.Model"))
    assert (row["state"], row["rank"]) == ("not checked", None)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("no_module.Mine", "no_module.Mine"),
        ("Mine", "Mine"),
        ("my_module.other", "my_module.other"),
        ("my_module.build", "weights.pt"),
    ],
)
def test_a_model_that_cannot_be_had(
    cli: Cli, given: list[str], mine: Path, model: str, said: str
) -> None:
    Path("weights.pt").write_bytes(b"\x80\x04N.")
    outcome = cli(
        "leaderboard", *given, f"--report={mine}", f"--model={model}", "--weights=weights.pt"
    )
    assert outcome.status == 1
    assert said in outcome.err


def test_both_or_neither(cli: Cli, given: list[str]) -> None:
    outcome = cli("leaderboard", *given, "--model=my_module.build")
    assert (outcome.status, "name both" in outcome.err) == (2, True)


def test_a_zoo_that_is_named_has_to_be_there(cli: Cli, given: list[str]) -> None:
    outcome = cli("leaderboard", "--records", "records.jsonl", "--zoo", "nowhere")
    assert "nowhere/index.json: not found" in outcome.error


def test_records_that_hold_no_worst_case(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text(json.dumps(record("gcn", experiment="table-3")))
    outcome = cli("leaderboard", "--records", "records.jsonl")
    assert outcome.out.splitlines()[-1] == "0 boards: no row"
