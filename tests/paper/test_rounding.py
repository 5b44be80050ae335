"""Where cells come out bit for bit, and how far rounding alone moves accuracies."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from robust_diffusion.arithmetic import LIBRARIES, PORTABLE
from robust_diffusion.evaluation.provenance import processor
from robust_diffusion.paper.rounding import ARITHMETICS, by_arithmetic, moved, replaced_by
from tests.paper.records import failed, finished, reference

NEW = "2026-02-02T00:00:00+00:00"


def again(clean: float, attacked: float, **more: Any) -> dict[str, Any]:
    return finished(clean, attacked, attacks=("speit",), fidelity="paper", **more)


def test_cells_are_counted_by_the_processors_that_round_as_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def on(variables: Mapping[str, str], cell: str, **more: Any) -> dict[str, Any]:
        with monkeypatch.context() as patch:
            for key in PORTABLE:
                patch.delenv(key, raising=False)
            for key, value in variables.items():
                patch.setenv(key, value)
            named = processor(torch.device("cpu"))
        return again(0.8, 0.6, cell=cell, processor=named, **more)

    shared = on(PORTABLE, "a", experiment="table-10")
    cells = [
        shared,
        reference(shared, "table-2"),
        on(LIBRARIES, "b", experiment="table-2"),
        on(LIBRARIES | {"MKL_CBWR": "AVX2"}, "c", experiment="table-10"),
        on({}, "d", experiment="table-10"),
        again(0.8, 0.6, cell="e", experiment="table-10"),  # of a record without a processor
        failed(cell="f", experiment="table-10"),
    ]
    shown = by_arithmetic(cells)
    counted = list(shown[["Experiment", "cells", *ARITHMETICS]].itertuples(index=False, name=None))
    assert counted == [
        ("table-2", "2", "1", "1", "0"),
        ("table-10", "4", "1", "0", "3"),
        ("", "5", "1", "1", "3"),
    ]
    portable, default = shared, on({}, "d", experiment="table-10")
    assert set(by_arithmetic([portable, default])) & set(ARITHMETICS) == {
        "any x86 with AVX2",
        "the same model",
    }
    assert by_arithmetic([failed(cell="f")]).empty


def test_what_gives_way_is_kept_by_its_accuracies() -> None:
    old, other = again(0.8, 0.6, cell="a", processor="one"), again(0.8, 0.6, cell="b")
    new = again(0.79, 0.63, cell="a", processor="two", time=NEW)
    published = [old, other, reference(old, "table-1")]
    (kept,) = replaced_by([new, again(0.5, 0.5, cell="c")], published)
    assert kept["cell"] == "a"
    assert kept["accuracy"] == old["accuracy"]
    assert kept["processor"] == "one"
    assert "config" not in kept
    assert replaced_by(published, published) == []


def test_what_was_only_timed_has_no_accuracy_to_keep() -> None:
    timed = {key: value for key, value in again(0.8, 0.6, cell="a").items() if key != "accuracy"}
    new = again(0.8, 0.6, cell="a", time=NEW)
    assert replaced_by([timed | {"time": NEW}], [again(0.8, 0.6, cell="a")]) == []
    assert replaced_by([new], [timed]) == []


def test_differences_are_summed_up_by_graph() -> None:
    old = [again(0.8, 0.5, seed=seed, cell=f"{seed}") for seed in range(4)]
    shifts = [(0.01, 0.2), (-0.015, -0.2), (0.0, 0.02), (0.02, -0.02)]
    new = [
        again(0.8 + clean, 0.5 + speit, seed=seed, cell=f"{seed}", time=NEW)
        for seed, (clean, speit) in enumerate(shifts)
    ]
    clean, speit = moved(replaced_by(new, old), new).to_dict("records")
    assert clean == {
        "Dataset": "cora",
        "Reading": "paper",
        "Test graph": "clean",
        "cells": "4",
        "median": "1.25",
        "nine of ten": "1.85",
        "largest": "2.00",
        "within 1.5": "75%",
        "means: median": "0.38",
        "means: largest": "0.38",
    }
    assert (speit["largest"], speit["within 1.5"], speit["means: largest"]) == (
        "20.00",
        "0%",
        "0.00",
    )


def test_a_network_that_cells_share_is_counted_once() -> None:
    shared = {"victim": "model-1"}
    old = [again(0.8, 0.5, cell=cell) for cell in "ab"]
    new = [
        again(0.7, 0.4, cell=cell, time=NEW, files=shared | {"speit": f"graph-{cell}"})
        for cell in "ab"
    ]
    assert list(moved(replaced_by(new, old), new)["cells"]) == ["1", "2"]


def test_without_a_pair_there_is_nothing_to_show() -> None:
    assert moved([], [again(0.8, 0.5)]).empty
    assert moved(replaced_by([again(0.8, 0.5, cell="a")], []), []).empty
