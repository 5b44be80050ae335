"""Keys that some options of a sweep lack, and some have."""

from collections.abc import Callable
from typing import Any

import pytest

from robust_diffusion.cells.sweeper import as_sweeps

Cli = Callable[..., Any]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("model.heads=2", "model.heads=choice(2)"),
        ("model.hidden_channels=[4,5]", "model.hidden_channels=choice([4,5])"),
        ("model.heads=1,2", "model.heads=1,2"),
        ("+model.heads=2", "+model.heads=2"),
        ("flow.heads=2", "flow.heads=2"),  # the flow is not swept
        ("seed=3", "seed=3"),
        ("-m", "-m"),
        ("paths.outputs=a=b", "paths.outputs=a=b"),
    ],
)
def test_keys_of_swept_groups_are_sweeps_of_one_value(typed: str, expected: str) -> None:
    assert as_sweeps([typed, "model=gcn,gat"]) == [expected, "model=gcn,gat"]
    assert as_sweeps([typed, "model=gcn"]) == [typed, "model=gcn"]


def test_a_key_of_an_attack_belongs_to_a_sweep_of_attacks() -> None:
    assert as_sweeps(["attack=[pgd],[speit]", "attacks.pgd.num_steps=3"])[1] == (
        "attacks.pgd.num_steps=choice(3)"
    )


@pytest.fixture
def overrides(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tiny_clean: list[str]
) -> Callable[..., list[dict[str, str]]]:
    """Overrides of the cells of a sweep, of which none is computed."""
    found: list[dict[str, str]] = []

    def collect(cfg: Any) -> dict[str, float]:
        from hydra.core.hydra_config import HydraConfig

        found.append(dict(o.split("=", 1) for o in HydraConfig.get().overrides.task))
        return {"val_accuracy": 0.5}

    monkeypatch.setattr("robust_diffusion.cells.experiment.run_and_record", collect)

    def run(*typed: str) -> list[dict[str, str]]:
        found.clear()
        outcome = cli("-m", *typed)
        assert outcome.status == 0, outcome.err
        told.append(outcome.err)
        return found

    return run


told: list[str] = []


@pytest.mark.parametrize(
    ("typed", "key", "having", "lacking"),
    [
        ("threat=white_box,black_box", "threat.fit.max_epochs=5", "black_box", "white_box"),
        ("model=gcn,gat", "model.heads=2", "gat", "gcn"),  # the default model has none either
        ("surrogate=[gcn],[gat]", "surrogates.gat.heads=2", "[gat]", "[gcn]"),
    ],
)
def test_a_key_is_left_out_where_an_option_lacks_it(
    overrides: Callable[..., list[dict[str, str]]],
    typed: str,
    key: str,
    having: str,
    lacking: str,
) -> None:
    (group, _), (name, _, value) = typed.split("="), key.partition("=")
    cells = {cell[group]: cell for cell in overrides(typed, key, "seed=0")}
    assert cells[having][name] == value
    assert name not in cells[lacking]
    (line,) = [line for line in told[-1].splitlines() if "left out" in line]
    assert line.endswith(
        f"{name}: left out of cells with {group}={lacking}, which have no such key"
    )


def test_a_key_that_is_swept_is_left_out_too(
    overrides: Callable[..., list[dict[str, str]]],
) -> None:
    cells = overrides("flow=heat,beltrami", "flow.heads=1,2", "model.hidden_channels=8")
    assert [cell.get("flow.heads") for cell in cells] == [None, None, "1", "2"]
    assert all(cell["model.hidden_channels"] == "8" for cell in cells)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["threat=white_box,black_box", "threat.ift.patience=3"], ["threat.ift.patience=3"]),
        (["seed=0,1", "flow.haeds=2"], ["flow.haeds=2", "heads"]),
        (["model=gcn,gat", "model.haeds=2,3"], ["model.haeds=2"]),
    ],
)
def test_a_key_that_no_option_has_is_one_error(
    cli: Cli, typed: list[str], words: list[str]
) -> None:
    outcome = cli("-m", *typed)
    assert outcome.status == 1
    assert outcome.err.splitlines()[-1] == outcome.error
    assert "unknown key" in outcome.error
    assert all(word in outcome.error for word in words)
    assert outcome.records == []
