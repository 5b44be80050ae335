import errno
import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import OmegaConfBaseException

from robust_diffusion.cells import experiment
from robust_diffusion.errors import ConfigError, TrainingError
from robust_diffusion.operators import current_backend
from robust_diffusion.run import describe, expected_cause
from robust_diffusion.training import NodeClassification

Cli = Callable[..., Any]
Records = list[dict[str, Any]]


def without(overrides: list[str], *keys: str) -> list[str]:
    """The overrides less those whose key begins like one of `keys`."""
    return [option for option in overrides if not option.startswith(keys)]


class Sweep:
    """`python -m robust_diffusion.run -m flow=heat,beltrami`, run once for many tests."""

    def __init__(self, folder: Path, overrides: list[str], flows: str = "heat,beltrami") -> None:
        self.folder = folder
        command = [sys.executable, "-m", "robust_diffusion.run", "-m", f"flow={flows}"]
        self.done = subprocess.run(
            [*command, *overrides],
            cwd=folder,
            env=os.environ | {"COLUMNS": "60"},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    @property
    def records(self) -> Records:
        lines = (self.folder / "outputs" / "records.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


TINY_SWEEP = [
    "dataset.source.num_nodes=200",
    "dataset.source.num_edges=400",
    "dataset.source.num_features=16",
    "training.max_epochs=3",
    "threat.fit.max_epochs=3",
    "model.hidden_channels=8",
    "budget.max_injected_nodes=3",
    "budget.max_edges_per_injected_node=3",
    "attacks.speit.num_steps=3",
    "attacks.tdgia.num_steps=3",
    "trainer=cpu",
]
TINY_CLEAN = [*without(TINY_SWEEP, "attacks.", "budget."), "attack=none"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return Sweep(tmp_path_factory.mktemp("elsewhere"), TINY_SWEEP)


def test_sweep_ends_in_a_table_of_flows_and_graphs(sweep: Sweep) -> None:
    assert sweep.done.returncode == 0, sweep.done.stderr
    title, *lines = [line for line in sweep.done.stdout.splitlines() if line.strip()]
    assert title.startswith("synthetic, easy test nodes: accuracy in %; training cut at 3 epochs; ")
    assert "; black_box (gcn), spent 3 nodes, 9 edges; " in title
    rows = [line for line in lines if line.startswith("|")]  # flags follow
    header, _, *body = [[c.strip(" !") for c in line.strip("|").split("|")] for line in rows]
    assert header == ["flow", "seeds", "clean", "speit", "tdgia"]
    assert [row[0] for row in body] == ["heat", "beltrami"]
    assert all(0 <= float(value) <= 100 for row in body for value in row[2:])


def test_sweep_says_on_stderr_what_it_does(sweep: Sweep) -> None:
    assert "synthetic heat: 3 epochs" in sweep.done.stderr
    assert "surrogate gcn: 3 epochs" in sweep.done.stderr
    assert "\r" not in sweep.done.stderr  # no bar where no one watches


def test_sweep_leaves_one_record_per_cell(sweep: Sweep) -> None:
    heat, beltrami = sweep.records
    assert (heat["flow"], beltrami["flow"]) == ("heat", "beltrami")
    for record in (heat, beltrami):
        assert (record["dataset"], record["model"]) == ("synthetic", "graph_pde")
        assert (record["solver"], record["seed"]) == ("implicit_adams", 0)
        assert list(record["accuracy"]) == ["clean", "speit", "tdgia"]
        assert all(0 <= share <= 1 for share in record["accuracy"].values())
        assert record["nfe"] > 0
        assert record["epochs"] == 3
        assert record["seconds"]["train"] > 0
        assert record["budget"]["declared"]["max_injected_nodes"] == 3
        assert record["budget"]["spent"]["speit"]["gcn"]["injected_nodes"] == 3
        assert record["config"]["threat"]["fit"]["max_epochs"] == 3
        assert record["versions"]["python"].startswith("3.")
        assert "revision" in record


def test_flows_of_one_seed_face_the_same_attacked_graphs(sweep: Sweep) -> None:
    heat, beltrami = sweep.records
    assert heat["attacked"] == beltrami["attacked"]
    assert heat["budget"]["spent"] == beltrami["budget"]["spent"]


def test_everything_stays_in_the_folder_it_was_started_from(sweep: Sweep) -> None:
    assert [path.name for path in sweep.folder.iterdir()] == ["outputs"]
    for record in sweep.records:
        cell = sweep.folder / "outputs" / record["directory"]
        assert (cell / "curves" / "metrics.csv").is_file()
        assert (cell / "run.log").is_file()


@pytest.mark.slow
def test_single_run_prints_its_row(cli: Cli, tiny: list[str]) -> None:
    outcome = cli("flow=grand", *tiny)
    assert outcome.status == 0
    (row,) = outcome.table
    assert row["flow"] == "grand"
    assert {"clean", "speit", "tdgia"} <= set(row)
    assert len(outcome.records) == 1


@pytest.mark.slow
def test_same_seed_same_result(cli: Cli, tiny: list[str]) -> None:
    cli("flow=beltrami", "seed=4", *tiny)
    first, second = cli("--force", "flow=beltrami", "seed=4", *tiny).records
    for key in ("accuracy", "attacked", "val_accuracy"):
        assert first[key] == second[key]
    assert first["directory"] != second["directory"]


def test_attacks_is_an_alias_of_attack(cli: Cli, tiny: list[str]) -> None:
    given = without(tiny, "attacks.tdgia")
    cli("flow=heat", "attack=[speit]", *given)
    # The same cell by its other name, so nothing is run again.
    record, reference = cli("flow=heat", "attacks=[speit]", *given).records
    assert list(record["accuracy"]) == ["clean", "speit"]
    assert reference["reference"]
    assert reference["cell"] == record["cell"]


BAD = [
    ("flow=nope", ["flow=nope", "beltrami", "heat"]),
    ("attack=nope", ["attack=nope", "none, pgd"]),
    ("attacks=[speit,nope]", ["attack=nope", "none, pgd"]),
    ("solver=nope", ["solver=nope", "implicit_adams"]),
    ("nope=1", ["nope=1", "unknown key", "training"]),
    ("flwo=heat", ["flwo=heat", "unknown key", "flow"]),
    ("training.nope=1", ["training.nope=1", "unknown key", "max_epochs"]),
    ("+flow.nope=1", ["flow.nope=1", "unknown key", "t_end"]),
    ("flow=heat flow.spectral_norm=true", ["flow.spectral_norm=true", "unknown key", "t_end"]),
    ("solver=dopri5 solver.num_steps=3", ["solver.num_steps=3", "unknown key", "rtol"]),
    ("solver.num_steps=0", ["solver.num_steps=0", "at least 1"]),
    ("solver.num_steps=2 solver.step_size=0.5", ["solver.num_steps=2, solver.step_size=0.5"]),
    ("budget.max_injected_nodes=-1", ["budget.max_injected_nodes=-1", "at least 0"]),
    (
        "budget.max_edges_per_injected_node=100000",
        ["budget.max_edges_per_injected_node=100000", "20 target nodes"],
    ),
    ("training.learning_rate=-1", ["training.learning_rate=-1", "above 0"]),
    ("threat.fit.learning_rate=-1", ["threat.fit.learning_rate=-1", "above 0"]),
    ("flow.t_end=-1.0", ["flow.t_end=-1", "at least 0"]),
    ("model.num_layers=0", ["model.num_layers=0", "at least 1"]),
    ("seed=-1", ["seed=-1", "at least 0"]),
    ("threads=0", ["threads=0", "at least 1"]),
    ("trainer.accelerator=nope", ["trainer.accelerator=nope", "trainer=cpu"]),
    ("flow.spectral_norm=no", ["flow.spectral_norm=no", "must be true or false"]),
    ("data.degree_leak=maybe", ["data.degree_leak=maybe", "must be true or false"]),
    ("force=no", ["force=no", "must be true or false"]),
    ("trainer.devices=2", ["trainer.devices=2", "use trainer.devices=1"]),
    ("+trainer.max_epochs=5", ["trainer.max_epochs=5", "set training.max_epochs"]),
    ("+trainer.precision=64-true", ["trainer.precision=64-true", "32-true", "bf16-mixed"]),
    ("training.max_epochs=???", ["training.max_epochs"]),
    ("flow", ["flow:", "key=value"]),
    ("tabel", ["tabel:", "key=value", "table"]),
    ("dataset.source.path=mine(1).npz", ["mine(1).npz", "quote a value"]),
    ("flow=1", ["flow=1", "unknown", "beltrami"]),
    ("model=true", ["model=true", "unknown", "graph_pde"]),
    ("flow=null", ["flow=null", "unknown", "beltrami"]),
    ("attacks=[]", ["attack=[]", "names no attack", "none", "speit"]),
    ("surrogate=[]", ["surrogate=[]", "names no surrogate", "gcn"]),
    ("flow={t_end:1}", ["flow={t_end:1}", "names no flow", "heat"]),
    ("paths.outputs=", ["paths.outputs=", "names no folder"]),
    ("-m --cfg job", ["-m --cfg", "all but one"]),
    ("hydra.job.chdir=True", ["hydra.job.chdir=True", "leave it out"]),
    ("dataset.name=''", ["dataset.name=:", "must be text"]),
    ("paths.records=null", ["paths.records=null", "names no folder"]),
    ("paths.outputs=/proc/x", ["/proc/x", "paths.outputs"]),
    ("flow=[heat", ["flow=[heat", "key=value"]),
    ("flow=heat,grand", ["flow=heat,grand", "--multirun"]),
]


@pytest.mark.parametrize(("wrong", "words"), BAD, ids=[wrong for wrong, _ in BAD])
def test_a_mistake_is_one_line_that_says_what_is_right(
    cli: Cli, tiny: list[str], wrong: str, words: list[str]
) -> None:
    assert_one_line(cli, tiny, wrong, words)


ODD = [
    ("=3", ["=3", "names no key"]),
    ("+=3", ["+=3", "names no key"]),
    ("~", ["~", "names no key"]),
    ("3", ["3:", "key=value"]),
    ("robust_diffusion.nope", ["robust_diffusion.nope:", "key=value"]),
    ("data=null", ["data=null", "_target_"]),
    ("data.source=null", ["data.source=null", "must be"]),
    ("attacks.speit=null", ["attacks.speit=null", "_target_"]),
    ("surrogates.gcn=3", ["surrogates.gcn=3", "_target_"]),
    ("attack=[3]", ["attack=[3]", "speit"]),
    ("model@x=3", ["model@x=3", "graph_pde"]),
    ("hydra/launcher=3", ["hydra/launcher=3", "unknown"]),
    ("dataset.name=../../x", ["dataset.name=../../x", "is no name"]),
    ("dataset.name=/tmp/x", ["dataset.name=/tmp/x", "is no name"]),
    ("experiment=../dataset/cora", ["experiment=../dataset/cora", "names no experiment"]),
    ("~budget", ["~budget", "every cell reads it"]),
    ("model=gcn training.learning_rate=1e38", ["training.learning_rate=1e+38", "at most 1e+37"]),
    ("++model._target_=no.such.Thing", ["model._target_=no.such.Thing", "cannot be imported"]),
]


@pytest.mark.faults
@pytest.mark.parametrize(("wrong", "words"), ODD, ids=[wrong for wrong, _ in ODD])
def test_an_odd_argument_is_one_line(
    cli: Cli, tiny: list[str], wrong: str, words: list[str]
) -> None:
    assert_one_line(cli, tiny, wrong, words)


def assert_one_line(cli: Cli, tiny: list[str], wrong: str, words: list[str]) -> None:
    given = wrong.split()
    keys = [option.split("=")[0] for option in given]
    attacks = ("attacks.",) if "attack" in wrong else ()
    deleted = tuple(f"{key[1:]}." for key in keys if key[:1] == "~" and key[1:])
    current_backend()  # whoever is first is told which it is
    outcome = cli(*given, *without(tiny, *(f"{key}=" for key in keys), *attacks, *deleted))
    assert outcome.status == 1
    assert outcome.err.splitlines() == [outcome.error]
    for word in words:
        assert word in outcome.error
    assert outcome.out == ""


@pytest.mark.slow
def test_a_value_of_the_wrong_type_is_told_too(tmp_path: Path) -> None:
    # In a process of its own, since under pytest the type checker is faster than the check.
    swept = ["difficulty=nope,easy", "seed=abc,0", "flow.t_end=0"]
    done = Sweep(tmp_path, [*swept, *TINY_CLEAN], flows="heat").done
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    failures = [line for line in done.stderr.splitlines() if line.startswith("cell ")]
    told = [re.match(r"cell (\d) failed: (\S+?=\w+): ", line).groups() for line in failures]
    assert [number for number, _ in told] == ["0", "1", "2"]
    assert told[1][1] == "difficulty=nope"
    assert told[2][1] == "seed=abc"
    assert done.stdout.count("failed") == 2


@pytest.mark.parametrize("fails", [False, True])
def test_a_cell_leaves_nothing_in_memory(
    cli: Cli, tiny: list[str], monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    class Ring:
        def __init__(self) -> None:
            self.itself = self

    left: list[weakref.ref[Ring]] = []

    def leaving_a_ring(_: object) -> dict[str, float]:
        left.append(weakref.ref(Ring()))
        if fails:
            raise TrainingError("the loss is not finite")
        return {"val_accuracy": 0.5}

    monkeypatch.setattr("robust_diffusion.cells.experiment.run_and_record", leaving_a_ring)
    gc.disable()
    try:
        cli(*tiny)
        remaining = [ring() for ring in left]
    finally:
        gc.enable()
    assert remaining == [None]


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_full_disk_is_one_line(
    cli: Cli, tiny: list[str], monkeypatch: pytest.MonkeyPatch, *, wrapped: bool
) -> None:
    def full(_: object) -> None:
        error = OSError(errno.ENOSPC, "No space left on device", "a.ckpt")
        if wrapped:
            raise RuntimeError("a checkpoint could not be saved") from error
        raise error

    monkeypatch.setattr("robust_diffusion.cells.experiment.run_and_record", full)
    outcome = cli(*tiny)
    assert outcome.status == 1
    assert outcome.err.splitlines() == [outcome.error]
    assert outcome.error == (
        "error: a.ckpt: No space left on device; free space, or name another folder by "
        "paths.outputs"
    )


@pytest.mark.faults
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EROFS, "Read-only file system", "a.ckpt"), "a.ckpt: Read-only file system"),
        (PermissionError(errno.EACCES, "Permission denied", "a.ckpt"), "a.ckpt: Permission denied"),
        (MemoryError(), "out of memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 8 TB"), "8 TB"),
    ],
    ids=["read-only", "denied", "memory", "tensor"],
)
def test_a_fault_of_the_machine_is_one_line_and_one_failure(
    cli: Cli,
    tiny_clean: list[str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    words: str,
) -> None:
    evaluate = experiment.evaluate_cell

    def faulty(**parts: Any) -> Any:
        if parts["seed"] == 0:
            raise error
        return evaluate(**parts)

    monkeypatch.setattr(experiment, "evaluate_cell", faulty)
    outcome = cli("-m", "flow=heat", "seed=0,1", *tiny_clean)
    assert outcome.status == 1
    assert "Traceback" not in outcome.err
    (line,) = [line for line in outcome.err.splitlines() if "failed" in line]
    assert line.startswith("cell 0 failed: ")
    assert words in line
    assert [record.get("error") for record in outcome.records] == [
        line.removeprefix("cell 0 failed: "),
        None,
    ]


@pytest.mark.faults
def test_a_cell_ends_at_its_time_limit(
    cli: Cli, tiny_clean: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(*_: Any, **__: Any) -> None:
        with suppress(Exception):
            time.sleep(60)

    monkeypatch.setattr(NodeClassification, "training_step", hang)
    outcome = cli("-m", "flow=heat", "time_limit=1", *tiny_clean)
    assert outcome.status == 1
    assert "cell 0 failed: time_limit=1: the cell was not done" in outcome.err
    assert "Traceback" not in outcome.err
    (record,) = outcome.records
    assert record["error_kind"] == "TrainingError"
    assert signal.getitimer(signal.ITIMER_REAL)[0] != 0  # the tests' own limit is back


@pytest.mark.faults
def test_a_custom_graph_is_not_passed_over_by_a_smoke_run(cli: Cli, tiny_clean: list[str]) -> None:
    given = ["dataset=custom", "dataset.source.path=mine.npz", "scale=smoke"]
    outcome = cli(*given, *without(tiny_clean, "dataset.", "training.", "model."))
    assert outcome.status == 1
    assert "dataset.source.path=mine.npz: scale=smoke draws a small graph" in outcome.error


def test_missing_data_files_are_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    outcome = cli("dataset=cora", "paths.data_dir=empty", "trainer=cpu")
    assert outcome.status == 1
    for word in ("empty/grb-cora/adj.npz", "not found", "paths.data_dir", "ROBUST_DIFFUSION_DATA"):
        assert word in outcome.error


def test_a_gpu_that_is_not_there_is_named(
    cli: Cli, tiny_clean: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for backend in ("cuda.is_available", "backends.mps.is_available"):
        monkeypatch.setattr(f"torch.{backend}", lambda: False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    outcome = cli("flow=heat", "trainer=gpu", *without(tiny_clean, "trainer="))
    assert outcome.status == 1
    assert "trainer.accelerator=gpu" in outcome.error
    assert "trainer=cpu" in outcome.error


@pytest.mark.gpu
def test_a_gpu_that_is_there_is_used(cli: Cli, tiny: list[str]) -> None:
    outcome = cli("flow=beltrami", "trainer=gpu", *without(tiny, "trainer="))
    assert outcome.status == 0
    assert list(outcome.records[0]["accuracy"]) == ["clean", "speit", "tdgia"]


def test_records_that_cannot_be_written_are_told_before_training(
    cli: Cli, tiny_clean: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    outcome = cli("flow=heat", "paths.records=file/records.jsonl", *tiny_clean)
    assert outcome.status == 1
    assert "paths.records=file/records.jsonl: cannot be written" in outcome.error
    assert outcome.err.splitlines() == [outcome.error]


def test_one_failing_cell_does_not_stop_the_others(cli: Cli, tiny_clean: list[str]) -> None:
    outcome = cli("-m", "flow=heat", "solver.num_steps=0,1", *tiny_clean)
    assert outcome.status == 1
    assert "Traceback" not in outcome.err
    failures = [line for line in outcome.err.splitlines() if line.startswith("cell ")]
    (failure,) = failures
    assert failure.startswith(
        "cell 0 failed: solver.num_steps=0: must be a whole number of at least 1"
    )
    broken, done = outcome.table
    assert (broken["solver.num_steps"], broken["clean"]) == ("0", "failed")
    assert 0 <= float(done["clean"]) <= 100
    assert ["error" in record for record in outcome.records] == [True, False]
    assert list(outcome.records[1]["accuracy"]) == ["clean"]
    assert outcome.records[1]["attacked"] == {}


def test_a_sweep_over_an_unknown_option_runs_no_cell(cli: Cli, tiny_clean: list[str]) -> None:
    outcome = cli("-m", "flow=heat,nope", *tiny_clean)
    assert outcome.status == 1
    assert "flow=nope: unknown" in outcome.error
    assert outcome.records == []


def test_a_defect_in_one_cell_is_traced_and_the_others_go_on(
    cli: Cli, tiny_clean: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = experiment.evaluate_cell

    def defective(**parts: Any) -> Any:
        if parts["seed"] == 0:
            raise ZeroDivisionError("a defect of ours")
        return evaluate(**parts)

    monkeypatch.setattr(experiment, "evaluate_cell", defective)
    outcome = cli("-m", "flow=heat", "seed=0,1", *tiny_clean)
    assert outcome.status == 1
    assert "cell 0 failed: ZeroDivisionError: a defect of ours" in outcome.err
    assert "Traceback" not in outcome.err
    errors = [record.get("error") for record in outcome.records]
    assert errors == ["ZeroDivisionError: a defect of ours", None]
    assert "(1 failed)" in outcome.table[0]["clean"]


def test_a_defect_in_a_single_run_is_one_line_and_its_traceback_is_kept(
    cli: Cli, tiny_clean: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def defective(**_: Any) -> None:
        raise ZeroDivisionError("a defect of ours")

    monkeypatch.setattr(experiment, "evaluate_cell", defective)
    outcome = cli("flow=heat", *tiny_clean)
    assert outcome.status == 1
    assert "ZeroDivisionError: a defect of ours" in outcome.error
    kept = Path(outcome.error.rpartition(" ")[2])
    assert "defective" in kept.read_text(encoding="utf-8")


def test_a_traceback_can_be_asked_for(
    cli: Cli, tiny_clean: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROBUST_DIFFUSION_TRACEBACK", "1")
    with pytest.raises(ConfigError, match=r"solver\.num_steps=0"):
        cli("flow=heat", "solver.num_steps=0", *tiny_clean)


@pytest.mark.parametrize(
    ("where", "mode"), [("training_step", []), ("validation_step", ["-m", "seed=0,1"])]
)
def test_ctrl_c_ends_the_program_in_one_line(
    cli: Cli, tiny: list[str], monkeypatch: pytest.MonkeyPatch, where: str, mode: list[str]
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(NodeClassification, where, interrupt)
    outcome = cli(*mode, "flow=heat", *tiny)
    assert outcome.status == 130
    assert outcome.err.splitlines()[-1].startswith("interrupted:")
    assert "Traceback" not in outcome.err
    assert outcome.records == []
    assert outcome.out == ""


@pytest.mark.slow
def test_a_real_ctrl_c_ends_the_program_at_once(tmp_path: Path) -> None:
    overrides = ["flow=heat", "training.max_epochs=1000000", "training.patience=1000000"]
    command = [sys.executable, "-m", "robust_diffusion.run", *overrides]
    process = subprocess.Popen(
        [*command, *without(TINY_CLEAN, "training.")],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests run in the background, a shell has them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("outputs/run/*/checkpoints/victim/*.ckpt")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.splitlines()[-1].startswith("interrupted:")
    assert "Traceback" not in err
    assert not (tmp_path / "outputs" / "records.jsonl").read_text()


def test_expected_errors_are_found_behind_what_wraps_them() -> None:
    ours, wrapper = ConfigError("seed=-1: must be at least 0"), HydraException("in call to target")
    wrapper.__cause__ = ours
    assert expected_cause(wrapper) is ours
    assert expected_cause(ZeroDivisionError()) is None


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (TrainingError("loss is nan\n  at epoch 3"), "loss is nan at epoch 3"),
        (OmegaConfBaseException("no such\nthing"), "no such thing"),
        (ZeroDivisionError("by\nzero"), "ZeroDivisionError: by zero"),
        (
            MissingConfigException("", "hydra/launcher/submitit_local", ["basic"]),
            "hydra/launcher=submitit_local: not installed; pip install 'robust-diffusion[slurm]'",
        ),
    ],
)
def test_a_message_is_one_line(error: Exception, line: str) -> None:
    assert describe(error) == line
