import json
from collections.abc import Callable
from typing import Any

import pytest

from robust_diffusion.commands.compare import run_compare_command
from robust_diffusion.errors import DataError
from tests.paper.records import finished


@pytest.fixture
def compared(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Lines that the command prints of some records."""

    def run(own: list[dict[str, Any]], *arguments: str) -> list[str]:
        path = tmp_path / "records.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in own))
        run_compare_command([*arguments, "--records", str(path)])
        return capsys.readouterr().out.strip().splitlines()

    return run


def test_settings_may_be_compared_on_validation_nodes(compared: Callable[..., list[str]]) -> None:
    own = [
        finished(0.7, experiment="tune-check", overrides=o, cell=repr(o), val_accuracy=v)
        for o, v in (({}, 0.7), ({"flow.heads": "2"}, 0.75))
    ]
    _, *rows = compared(own, "tune-check", "--on", "validation", "--format", "csv")
    assert rows == ["(baseline),1,70.00,", "heads=2,1,75.00,+5.00"]


def test_worst_cases_of_two_models_are_compared(compared: Callable[..., list[str]]) -> None:
    options = {"experiment": "worst-case", "threat": "white_box", "attacks": ("auto",)}
    own = [
        finished(0.8, accuracy, seed=seed, flow=flow, split="a", **options)
        for flow, accuracy in (("beltrami", 0.2), ("uniform_modulation", 0.1))
        for seed in (0, 1)
    ]
    asked = ["worst-case", "--models", "beltrami", "uniform_modulation"]
    *_, worst = compared(own, *asked)
    assert [cell.strip() for cell in worst.split("|")[1:3]] == ["worst", "2"]
    head = compared(own, *asked, "--format", "csv")[0]
    assert head.startswith("accuracy,seeds,beltrami,uniform_modulation,")
    for wrong in (["worst-case", "--models", "grand", "heat"], ["nope"]):
        with pytest.raises(DataError, match=wrong[0]):
            compared(own, *wrong)
    with pytest.raises(DataError, match="--records"):
        run_compare_command(["t-end", "--records", "no.jsonl"])
