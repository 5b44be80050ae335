"""A sweep that was stopped is taken up again: nothing is lost, nothing is done twice."""

import collections
from collections.abc import Callable
from typing import Any

import pytest

FLOWS = ("heat", "grand", "mean_curvature")


def finished(records: list[dict[str, Any]]) -> collections.Counter[str]:
    return collections.Counter(r["flow"] for r in records if "accuracy" in r)


def test_an_interrupted_sweep_is_taken_up_where_it_was(
    cli: Callable[..., Any], tiny_clean: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from robust_diffusion import experiment

    evaluate, flows = experiment.evaluate_cell, FLOWS

    def interrupted(**parts: Any) -> Any:
        if parts["description"].endswith(flows[1]):
            raise KeyboardInterrupt
        return evaluate(**parts)

    sweep = ("-m", f"flow={','.join(flows)}", "logger=none", *tiny_clean)
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "evaluate_cell", interrupted)
        before = cli(*sweep).records
    assert finished(before) == {flows[0]: 1}
    outcome = cli(*sweep)
    assert outcome.status == 0
    assert outcome.records[: len(before)] == before
    assert finished(outcome.records) == dict.fromkeys(flows, 1)
    assert sum("reference" in r for r in outcome.records) == len(before)
    assert [row["flow"] for row in outcome.table] == list(flows)
    assert "3 of 3 cells done" in outcome.err


def test_force_repeats_what_is_done(cli: Callable[..., Any], tiny_clean: list[str]) -> None:
    first = cli("flow=heat", *tiny_clean)
    again = cli("flow=heat", *tiny_clean)
    forced = cli("--force", "flow=heat", *tiny_clean)
    assert [("accuracy" in r, "reference" in r) for r in forced.records] == [
        (True, False),
        (False, True),
        (True, False),
    ]
    assert first.table == again.table == forced.table
    done, _, repeated = forced.records
    assert done["cell"] == repeated["cell"]
    assert done["accuracy"] == repeated["accuracy"]
    assert repeated["reused"] == []


def test_a_failed_cell_is_tried_again(cli: Callable[..., Any], tiny_clean: list[str]) -> None:
    broken = cli("-m", "flow=heat", *tiny_clean, "training.learning_rate=1e30")
    again = cli("-m", "flow=heat", *tiny_clean, "training.learning_rate=1e30")
    assert (broken.status, again.status) == (1, 1)
    assert [record["error_kind"] for record in again.records] == ["TrainingError"] * 2
    assert len({record["cell"] for record in again.records}) == 1
