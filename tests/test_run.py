import errno
import gc
import logging
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

from robust_diffusion.errors import ConfigError, TrainingError
from robust_diffusion.experiment import run as running
from robust_diffusion.operators import current_backend
from robust_diffusion.records import read_records
from robust_diffusion.training import NodeClassification
from tests.conftest import TINY_ATTACKS, TINY_DATA, TINY_TRAINING

Cli = Callable[..., Any]
RUN = "robust_diffusion.experiment.run.run_and_record"


def without(overrides: list[str], *keys: str) -> list[str]:
    """The overrides less those whose key begins like one of `keys`."""
    return [option for option in overrides if not option.startswith(keys)]


@pytest.mark.slow
def test_a_sweep_leaves_a_table_records_and_nothing_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "robust_diffusion.run", "-m", "flow=heat,beltrami"]
    done = subprocess.run(
        [*command, *TINY_ATTACKS, *TINY_DATA, *TINY_TRAINING],
        cwd=tmp_path,
        env=os.environ | {"COLUMNS": "60"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    records = read_records(tmp_path / "outputs" / "records")
    assert "\r" not in done.stderr  # no bar where no one watches
    title, *lines = [line for line in done.stdout.splitlines() if line.strip()]
    assert title.startswith("synthetic, easy test nodes: accuracy in %; training cut at 3 epochs; ")
    rows = [line for line in lines if line.startswith("|")]  # flags follow
    header, _, *body = [[c.strip(" !") for c in line.strip("|").split("|")] for line in rows]
    assert header == ["flow", "seeds", "clean", "speit", "tdgia"]
    assert [row[0] for row in body] == ["heat", "beltrami", "mlp"]
    assert len({*body.pop()[2:]}) == 1  # no attack changes what an MLP predicts
    assert [path.name for path in tmp_path.iterdir()] == ["outputs"]
    heat, beltrami, mlp = records
    assert (mlp.model, mlp.accuracy.keys()) == ("mlp", {"clean"})
    assert (heat.flow, beltrami.flow) == ("heat", "beltrami")
    assert heat.attacked == beltrami.attacked
    assert heat.spent == beltrami.spent
    for row, record in zip(body, records[:2], strict=True):
        assert [f"{100 * share:.2f}" for share in record.accuracy.values()] == row[2:]
        assert record.config.threat["fit"]["max_epochs"] == 3
        folder = tmp_path / "outputs" / record.directory
        assert (folder / "curves" / "metrics.csv").is_file()
        assert (folder / "run.log").is_file()


@pytest.mark.slow
def test_attacks_is_alias_of_attack_and_force_gives_same_result(cli: Cli, tiny: list[str]) -> None:
    given = ["flow=heat", *without(tiny, "attacks.tdgia")]
    outcome = cli("attack=[speit]", *given)
    assert outcome.table[0].keys() >= {"flow", "clean", "speit"}
    # The same run by its other name, so nothing is run again.
    (first,) = cli("attacks=[speit]", *given).records
    assert len(first.requests) == 2
    (forced,) = cli("--force", "attack=[speit]", *given).records
    for key in ("accuracy", "attacked", "val_accuracy"):
        assert getattr(first, key) == getattr(forced, key)
    assert first.directory != forced.directory


@pytest.mark.slow
def test_forced_run_that_fails_ends_its_sweep_and_keeps_the_record(
    cli: Cli, tiny_clean: list[str]
) -> None:
    given = ["-m", "flow=heat", "seed=0", *tiny_clean]
    (first,) = cli(*given).records
    outcome = cli("--force", *given, "time_limit=1e-3")
    assert outcome.status == 1
    assert "failed" in outcome.out
    assert [record.accuracy for record in outcome.records] == [first.accuracy]
    assert cli(*given).status == 0


WRONG = r"""
flow=nope flow={t_end:1} flow=heat,grand flow attack=[] nope=1 training.nope=1
flow.lipschitz=no trainer.devices=2 +trainer.max_epochs=5 training.max_epochs=??? paths.outputs=
paths.outputs=/proc/x hydra.job.chdir=True =3 ~ data.source=null dataset.name=../../x ~budget
++model._target_=no.such.Thing
"""
WRONG_TOGETHER = [
    "flow=heat flow.lipschitz=true",
    "solver=dopri5 solver.num_steps=3",
    "model=gcn training.learning_rate=1e38",
    "-m --cfg job",
]


@pytest.mark.faults
@pytest.mark.parametrize("wrong", [*WRONG.split(), *WRONG_TOGETHER])
def test_a_mistake_is_one_line_that_names_it(cli: Cli, tiny: list[str], wrong: str) -> None:
    given = wrong.split()
    keys = [option.split("=")[0] for option in given]
    attacks = ("attacks.",) if "attack" in wrong else ()
    deleted = tuple(f"{key[1:]}." for key in keys if key[:1] == "~" and key[1:])
    current_backend()  # whoever is first is told which it is
    outcome = cli(*given, *without(tiny, *(f"{key}=" for key in keys), *attacks, *deleted))
    assert (outcome.status, outcome.out) == (1, "")
    told = [line for line in outcome.err.splitlines() if not re.match(r"dataset|\w+ on ", line)]
    assert told == [outcome.error]
    assert keys[-1].lstrip("+") in outcome.error or wrong.startswith("-m")


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

    monkeypatch.setattr(RUN, leaving_a_ring)
    gc.disable()
    try:
        cli(*tiny)
        remaining = [ring() for ring in left]
    finally:
        gc.enable()
    assert remaining == [None]


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "a.ckpt"), "a.ckpt"),
        (MemoryError(), "out of memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 8 TB"), "8 TB"),
        (ZeroDivisionError("a defect of ours"), "ZeroDivisionError: a defect of ours"),
        (TrainingError("the loss is not finite"), "the loss"),
    ],
    ids=lambda of: type(of).__name__ if isinstance(of, Exception) else "",
)
def test_a_fault_or_a_defect_in_one_cell_is_one_failure_and_the_others_go_on(
    cli: Cli, tiny_clean: list[str], monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    evaluate = running.evaluate_run

    def faulty(train: Any, *parts: Any, **named: Any) -> Any:
        if train.seed == 0:
            raise error
        return evaluate(train, *parts, **named)

    monkeypatch.setattr(running, "evaluate_run", faulty)
    logging.getLogger("robust_diffusion").setLevel(logging.INFO)
    outcome = cli("-m", "flow=heat", "seed=0,1", *tiny_clean)
    assert outcome.status == 1
    assert "Traceback" not in outcome.err
    (line,) = [line for line in outcome.err.splitlines() if " failed: " in line]
    assert words in line
    failed, done = outcome.records
    assert line.startswith(f"[1/2] seed=0  failed: {failed.error}")
    assert "(1 failed)" in outcome.table[0]["clean"]
    assert (done.attacked, list(done.accuracy)) == ({}, ["clean"])
    # The same in a single run.
    outcome = cli("--force", "flow=heat", "seed=0", *tiny_clean)
    assert words in outcome.error
    if isinstance(error, ZeroDivisionError):  # keeps its traceback in a file
        assert "faulty" in Path(outcome.error.rpartition(" ")[2]).read_text(encoding="utf-8")


@pytest.mark.faults
def test_a_full_disk_shows_no_run_as_done(
    cli: Cli, tiny_clean: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Any, path: str) -> None:
        raise ConfigError(f"paths.records {path}: cannot be written (No space left on device)")

    monkeypatch.setattr(running, "save_record", full)
    logging.getLogger("robust_diffusion").setLevel(logging.INFO)
    outcome = cli("-m", "flow=heat", "seed=0", *tiny_clean)
    assert outcome.status == 1
    (line,) = [line for line in outcome.err.splitlines() if line.startswith("[1/1]")]
    assert " failed: paths.records " in line


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
    (record,) = outcome.records
    assert (record.error[:12], record.error_kind) == ("time_limit=1", "TrainingError")
    assert signal.getitimer(signal.ITIMER_REAL)[0] != 0  # the tests' own limit is back


@pytest.mark.slow
@pytest.mark.faults
def test_what_is_not_there_is_named_before_training(
    cli: Cli, tiny_clean: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = without(tiny_clean, "dataset.", "training.", "model.")
    custom = cli("dataset=custom", "dataset.source.path=mine.npz", "scale=smoke", *clean)
    assert "dataset.source.path=mine.npz: not read by scale=smoke" in custom.error
    missing = cli("dataset=cora", "paths.data_dir=empty", "trainer=cpu")
    assert all(of in missing.error for of in ("empty/grb-cora/adj.npz", "paths.data_dir"))
    for backend in ("cuda.is_available", "backends.mps.is_available"):
        monkeypatch.setattr(f"torch.{backend}", lambda: False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    gpu = cli("flow=heat", "trainer=gpu", *without(tiny_clean, "trainer="))
    assert "trainer.accelerator=gpu" in gpu.error
    Path("file").write_text("")
    written = cli("flow=heat", "paths.records=file/records", *tiny_clean)
    assert "paths.records file/records" in written.error
    sweep = cli("-m", "flow=heat", "solver.num_steps=0,2,-1", *tiny_clean)
    assert all(f"solver.num_steps={value}: " in sweep.error for value in (0, -1))
    monkeypatch.setenv("ROBUST_DIFFUSION_TRACEBACK", "1")
    with pytest.raises(ConfigError, match=r"solver\.num_steps=0"):
        cli("flow=heat", "solver.num_steps=0", *tiny_clean)


@pytest.mark.gpu
def test_a_gpu_that_is_there_is_used(cli: Cli, tiny: list[str]) -> None:
    outcome = cli("flow=beltrami", "trainer=gpu", *without(tiny, "trainer="))
    assert outcome.status == 0
    assert list(outcome.records[0].accuracy) == ["clean", "speit", "tdgia"]


@pytest.mark.faults
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
    assert (outcome.status, outcome.records, outcome.out) == (130, [], "")
    assert outcome.err.splitlines()[-1].startswith("interrupted:")
    assert "Traceback" not in outcome.err
