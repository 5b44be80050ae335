import io
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from robust_diffusion.records import Record
from tests.paper.records import archived, finished


@pytest.fixture
def compared(cli: Callable[..., Any]) -> Callable[..., Any]:

    def run(own: list[Record], *arguments: str) -> Any:
        return cli("compare", *arguments, "--records", archived(*own))

    return run


def test_settings_may_be_compared_on_validation_nodes(compared: Callable[..., Any]) -> None:
    own = [
        finished(0.7, experiment="tune-check", overrides=o, run=repr(o), val_accuracy=v)
        for o, v in (({}, 0.7), ({"flow.heads": "2"}, 0.75))
    ]
    found = compared(own, "tune-check", "--on", "validation", "--format", "csv")
    table = pd.read_csv(io.StringIO(found.out)).set_index("setting")
    assert list(table["validation"]) == [70, 75]
    assert table.loc["heads=2", "change in validation"] == pytest.approx(5)


def test_worst_cases_on_validation_nodes_are_refused(compared: Callable[..., Any]) -> None:
    asked = ["worst-case", "--models", "beltrami", "heat", "--on", "validation"]
    assert compared([finished(0.8)], *asked).status == 2


def test_worst_cases_of_two_models_are_compared(
    compared: Callable[..., Any], cli: Callable[..., Any]
) -> None:
    options = {"experiment": "worst-case", "threat": "white_box", "attacks": ("auto",)}
    own = [
        finished(0.8, accuracy, seed=seed, flow=flow, split="a", **options)
        for flow, accuracy in (("beltrami", 0.2), ("uniform_modulation", 0.1))
        for seed in (0, 1)
    ]
    asked = ["worst-case", "--models", "beltrami", "uniform_modulation"]
    worst = compared(own, *asked).table[-1]
    assert (worst["accuracy"], worst["seeds"]) == ("worst", "2")
    assert compared(own, *asked, "--format", "csv").out.startswith(
        "accuracy,seeds,beltrami,beltrami ±,"
    )
    for wrong in (["worst-case", "--models", "grand", "heat"], ["nope"]):
        assert wrong[0] in compared(own, *wrong).error
    assert "no.jsonl.gz: not found" in cli("compare", "t-end", "--records", "no.jsonl.gz").error
