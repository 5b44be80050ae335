import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from robust_diffusion import AutoInjection, open_dataset
from robust_diffusion.commands.submission import ReportCheck
from robust_diffusion.errors import DataError
from robust_diffusion.results.leaderboard.board import boards
from robust_diffusion.robustness.zoo import Zoo, load_model
from tests.results.leaderboard.reports import records_of, report
from tests.zoo import small_zoo, trained


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    return small_zoo(tmp_path_factory.mktemp("zoo"))


@pytest.fixture(scope="module")
def own() -> nn.Module:
    return trained(open_dataset("synthetic"), epochs=5)


@pytest.fixture(scope="module")
def made(zoo: Zoo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = load_model("gcn", "synthetic", directory=zoo.directory)
    return report(tmp_path_factory.mktemp("made") / "mine", model)


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(made, tmp_path / "mine"))


def changed(folder: Path, attack: int | None = None, **changes: Any) -> Path:
    """The report with other claims, of one attack or as a whole."""
    claims = json.loads((folder / "report.json").read_text())
    (claims if attack is None else claims["attacks"][attack]).update(changes)
    (folder / "report.json").write_text(json.dumps(claims))
    return folder


def check(zoo: Zoo, own: nn.Module | None = None, worst: float = 0.9, **how: Any) -> ReportCheck:
    return ReportCheck(records_of(zoo, worst), zoo, None if own is None else lambda _: own, **how)


def test_a_better_attack_on_a_published_model_lowers_it(zoo: Zoo, made: Path) -> None:
    checking = check(zoo)
    checked = checking(made)
    (board,) = boards([*checking.records, *checked])
    mlp, row = sorted(board.rows, key=lambda row: row.model == "gcn")
    claimed = json.loads((made / "report.json").read_text())["robust_accuracy"]
    assert row.curve == [pytest.approx(100 * claimed)]
    assert row.state == "ranked"
    assert row.sources == ["published records", "report mine"]
    assert row.by.startswith("report mine: auto")
    assert mlp.state == "control"
    (board,) = boards([*check(zoo, worst=0.1).records, *check(zoo, worst=0.1)(made)])
    row = next(row for row in board.rows if row.model == "gcn")
    assert (row.curve, row.sources) == ([pytest.approx(10)], ["published records"])


def test_a_claimed_accuracy_is_measured(zoo: Zoo, folder: Path) -> None:
    claims = json.loads((folder / "report.json").read_text())
    for attack, key in ((None, "clean_accuracy"), (1, "accuracy")):
        of = claims if attack is None else claims["attacks"][attack]
        with pytest.raises(DataError, match=rf"claimed 1\.00 %, found {100 * of[key]:.2f} %"):
            check(zoo)(changed(folder, attack, **{key: 0.01}))
        changed(folder, attack, **{key: of[key]})


def test_a_graph_beyond_its_budget_is_refused(zoo: Zoo, folder: Path) -> None:
    budget = json.loads((folder / "report.json").read_text())["budget"]
    changed(folder, budget=budget | {"max_injected_nodes": 4})
    with pytest.raises(DataError, match=r"breaks its budget: .*5 .*4"):
        check(zoo)(folder)


def test_other_nodes_or_another_graph_are_refused(zoo: Zoo, folder: Path) -> None:
    with pytest.raises(DataError, match=r"its clean graph is 0123, and that of dataset=synthetic"):
        check(zoo)(changed(folder, clean_graph="0123"))


def test_a_graph_of_the_report_is_needed(zoo: Zoo, folder: Path) -> None:
    path = folder / "graph-auto.safetensors"
    for make in (lambda: path.write_bytes(b"N."), lambda: os.mkfifo(path), lambda: None):
        path.unlink()
        make()
        with pytest.raises(DataError, match=r"graph-auto\.safetensors"):
            check(zoo)(folder)
        path.touch()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"weights": "0a"}, "no zoo entry has its weights"),
        ({"dataset": ""}, "names no dataset"),
        ({"dataset": "synthetic seed=1"}, "names no dataset"),
        ({"dataset": "cora"}, "grb-cora"),
    ],
)
def test_what_cannot_be_checked(
    zoo: Zoo,
    folder: Path,
    changes: dict[str, str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("ROBUST_DIFFUSION_DATA", str(tmp_path / "none"))
    with pytest.raises(DataError, match=reason):
        check(zoo)(changed(folder, **changes))


@pytest.mark.slow
def test_a_name_is_not_believed(zoo: Zoo, tmp_path: Path) -> None:
    """A network of all labels, and chance under the name of `auto`."""
    cheat = trained(open_dataset("synthetic"), epochs=5, on_all=True)
    folder = report(tmp_path / "theirs", cheat)
    claimed = json.loads((folder / "report.json").read_text())["robust_accuracy"]
    for attack, state in ((AutoInjection(num_steps=2), "training not checked"), (None, "claimed")):
        checking = check(zoo, cheat, attack=attack)
        (board,) = boards([*checking.records, *checking(folder)])
        row = next(row for row in board.rows if row.variant == "own")
        assert (row.state, row.rank) == (state, None)
        assert ("white box: auto, report theirs: auto" in row.attacks) == bool(attack)
        if attack:
            assert row.curve[0] is not None
            assert row.curve[0] < 100 * claimed


@pytest.mark.parametrize("how", [{"training": "seed=3"}, {}])
def test_other_weights_are_not_those_of_the_report(
    zoo: Zoo, own: nn.Module, tmp_path: Path, how: dict[str, str]
) -> None:
    other = trained(open_dataset("synthetic"), epochs=1)
    with pytest.raises(DataError, match="other weights than the report's"):
        check(zoo, other, **how)(report(tmp_path / "theirs", own))
