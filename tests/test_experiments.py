"""What is published is made of the published records."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from robust_diffusion.config import PUBLISHED_RECORDS
from robust_diffusion.errors import DataError
from robust_diffusion.records import read_records
from robust_diffusion.records.content import leaves_of
from robust_diffusion.records.record import Record
from robust_diffusion.results.frame import frame
from robust_diffusion.results.leaderboard import leaderboard
from robust_diffusion.results.worst_case import recorded_on, show_worst_cases
from robust_diffusion.system.portable import PORTABLE, named_in
from tests.paper.records import also_asked, archived, failed, finished

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results"


@cache
def script(name: str) -> ModuleType:
    path = ROOT / "experiments" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return read_records(PUBLISHED_RECORDS)


def test_the_pages_of_gpus_are_what_their_records_say() -> None:
    for path in (ROOT / "benchmarks" / "results").glob("nvidia-*.json"):
        page = script("../benchmarks/tables").card_page(json.loads(path.read_text("utf-8")))
        assert path.with_suffix(".md").read_text("utf-8") == page


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark of a card, with a card that is none and cases that measure nothing."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    module = script("../benchmarks/gpu")
    monkeypatch.setattr(module, "ON_CARD", True)
    monkeypatch.setattr(module, "CASES", dict.fromkeys(module.CASES, dict))
    monkeypatch.setattr(module.torch.cuda, "get_device_name", lambda: "An Abacus")
    monkeypatch.setenv("OUT", str(tmp_path))
    return module


def test_a_part_measured_on_a_card_keeps_the_others(
    gpu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fit", "launches"):
        call(monkeypatch, gpu, "--only", name)
    assert json.loads((tmp_path / "an-abacus.json").read_text()).keys() > {"fit", "launches"}


def test_an_unknown_part_is_refused_before_any_is_measured(
    gpu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(monkeypatch, gpu, "--only", "fit,auto") == 2
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    ["claims", "compare worst-case", "leaderboard", "table 3", "report"],
)
def test_every_command_works_on_published_records(cli: Callable[..., Any], command: str) -> None:
    outcome = cli(*command.split(), "--records", str(PUBLISHED_RECORDS))
    assert (outcome.status, bool(outcome.out)) == (0, True), outcome.err


def test_one_number_has_one_value_on_all_pages(records: list[Record]) -> None:
    tables = [
        show_worst_cases(recorded_on(frame(records), {name})).cells
        for name in ("worst-case", "worst-case-models", "successors", "adversarial")
    ]
    tables[-1] = tables[-1][tables[-1]["budget"].str.startswith("50 nodes")]
    found: dict[str, tuple[str, ...]] = {}
    columns = ["seeds", "clean", "random injection", "transfer", "white box"]
    columns += ["worst", "above MLP"]
    for row in (row for table in tables for row in table.to_dict("records")):
        shown = tuple(f"{row[column]:.2f}" for column in columns)
        assert found.setdefault(row["model"], shown) == shown
    board = leaderboard(frame(records), [(50, 50)])
    rows = board[board["dataset"] == "cora"].set_index("model")
    assert {*rows.index} == found.keys()
    for model, row in rows.iterrows():
        seeds, clean, *_, worst, _ = found[str(model)]
        assert f"{row['seeds']:.2f}" == seeds
        assert f"{row['clean']:.2f}" == clean
        # A graph of less than the budget counts there, too.
        assert row["50x50"] <= float(worst) + 0.01


def test_published_records_are_whole_and_clean(records: list[Record]) -> None:
    assert records
    for record in records:
        assert record.error is None
        assert record.id_of_settings == record.run
        assert not record.model_extra
        if record.accuracy:
            assert named_in(record.processor or "") == PORTABLE
            assert "auto" not in record.accuracy or "auto" in record.attack_versions
        assert record.revision
        assert not record.revision.endswith("-dirty")


def test_published_configurations_name_no_folder_of_a_machine(records: list[Record]) -> None:
    words = read_records(RESULTS.parent / "words" / "records.jsonl.gz")
    for record in (*records, *words):
        for path, value, _ in leaves_of(record.config.whole):
            assert not Path(str(value)).is_absolute(), f"{record.run}: {path}"


def call(monkeypatch: pytest.MonkeyPatch, module: ModuleType, *arguments: str) -> int | str | None:
    """Runs a script's `main`, and gives what it exits with."""
    monkeypatch.setattr(sys, "argv", [module.__name__, *arguments])
    try:
        module.main()
    except SystemExit as end:
        return end.code
    return 0


@pytest.mark.slow
def test_views_are_what_the_records_say() -> None:
    # In a process of its own, since the type checker of the tests takes longer than the views.
    command = [sys.executable, str(ROOT / "experiments" / "publish.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_cannot_be_read_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, before = tmp_path / "odd.jsonl.gz", PUBLISHED_RECORDS.read_bytes()
    path.write_bytes(b"odd")
    for named in (path, tmp_path / "missing"):
        assert named.name in str(call(monkeypatch, script("publish"), str(named)))
    assert PUBLISHED_RECORDS.read_bytes() == before


def test_arithmetic_of_one_machine_publishes_nothing(records: list[Record]) -> None:
    check = script("publish").check_arithmetic
    attacked = next(record for record in records if record.accuracy)
    check([attacked])
    other = attacked.model_copy(update={"processor": "AMD EPYC, AVX512"})
    with pytest.raises(DataError, match=f"{other.run}: .* AVX512; run it again with PORTABLE=1"):
        check([attacked, other])
    other = attacked.model_copy(update={"backend": "torch"})
    with pytest.raises(DataError, match=f"{other.run}: .* got backend=torch"):
        check([attacked, other])


def test_what_is_published_names_no_place_and_keeps_every_request() -> None:
    config = {"data": {"source": {"root": "/home", "seed": 0}}, "model": {"root": "kept"}}
    record = also_asked(finished() | {"config": config}, "table-1")
    kept = script("publish").without_places(record)
    assert kept.config.whole == {"data": {"source": {"seed": 0}}, "model": {"root": "kept"}}
    assert kept.requests == record.requests


@pytest.mark.slow
def test_a_published_cell_is_run_again(cli: Callable[..., Any]) -> None:
    given = ["-m", "experiment=demo", "scale=smoke", "flow=heat", "seed=1", "attack=none"]
    outcome = cli(*given, "logger=none")
    archived(*outcome.records[:1], path="published.jsonl.gz")
    command = [sys.executable, str(ROOT / "experiments" / "reproduce.py"), "--runs", "1"]
    command += ["--records", "published.jsonl.gz"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.endswith(": the same accuracies\n"), done.stderr
    assert done.returncode == 0


PUBLISHED = finished(0.5, run="a", attacks=(), processor="an abacus")


@pytest.mark.parametrize(
    ("found", "end"),
    [
        (PUBLISHED, 0),
        (PUBLISHED | {"accuracy": {"clean": 0.48}}, "1 further than 1.5 points away: a"),
        (PUBLISHED | {"accuracy": {"clean": 0.51}, "processor": "a slide rule"}, 0),
        (PUBLISHED | {"run": "b"}, "1 of other options today: a"),
        (failed(run="a"), "1 did not run: a"),
        (None, "1 did not run: a"),
    ],
)
def test_a_cell_that_was_run_again_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Record | None, end: object
) -> None:
    path, module = tmp_path / "published.jsonl.gz", script("reproduce")
    archived(PUBLISHED, path=path)
    monkeypatch.setattr(module, "_run", lambda *_: found)
    assert call(monkeypatch, module, "--records", str(path)) == end


def test_graphs_by_another_version_of_an_attack_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, module = tmp_path / "published.jsonl.gz", script("reproduce")
    old, new = (
        PUBLISHED
        | {"accuracy": {"clean": 0.5, "auto": worst}, "attack_versions": {"auto": version}}
        for worst, version in ((0.2, 6), (0.1, 7))
    )
    archived(old, path=path)
    monkeypatch.setattr(module, "_run", lambda *_: new)
    assert call(monkeypatch, module, "--records", str(path)) == 0
    assert "the same accuracies, auto -10.00 by version 7, recorded by 6" in capsys.readouterr().out


def test_a_cell_is_run_again_with_the_edge_values_and_arithmetic_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"edge_values": "ids"}
    overrides = {"dataset": "coauthor", "seed": "0", "logger": "wandb"}
    config = {"threads": 2, "data": data}
    record = finished() | {"overrides": overrides, "config": config, "backend": "torch"}
    command = script("reproduce")._command
    given = {"dataset=coauthor", "seed=0", "fidelity.edge_values=ids", "logger=none", "threads=2"}
    assert {*command(record, tmp_path)} > {*given, "backend=torch", f"paths.outputs={tmp_path}"}
    record |= {"config": {"threads": 2}}  # as records of before have none
    assert "fidelity.edge_values=ones" in command(record, tmp_path)
    assert not any("seeding" in given for given in command(record, tmp_path))
    attacked = {"threat": {"surrogates": {"gcn": {}}}, "attacks": {"pgd": {}}}
    record |= {"config": attacked | {"threads": 2}}
    assert "threat.seeding=run" in command(record, tmp_path)
    record |= {"overrides": {"data.normalize": "null", "flow@model.flow": "heat"}}
    assert {"++data.normalize=null", "flow@model.flow=heat"} < {*command(record, tmp_path)}
    for variable, value in PORTABLE.items():
        monkeypatch.setenv(variable, value)
    environment = script("reproduce")._environment
    assert environment(finished(processor="an abacus, AVX2")).keys().isdisjoint(PORTABLE)
    older = environment(finished(processor="an abacus, AVX2, MKL_CBWR=COMPATIBLE, HOME=/"))
    assert {key: older[key] for key in PORTABLE.keys() & older} == {"MKL_CBWR": "COMPATIBLE"}
