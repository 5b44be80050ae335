import json
import os
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.errors import DataError
from robust_diffusion.robustness.saved_report import read_claims

ATTACK = {
    "name": "pgd/GCN",
    "kind": "injection",
    "accuracy": 0.5,
    "is_control": False,
    "made_on": "GCN",
}
BUDGET = {
    "max_injected_nodes": 2,
    "max_edges_per_injected_node": 3,
    "feature_limits": [-1.0, 1.0],
}
REPORT = {
    "model": "Mine",
    "clean_accuracy": 0.8,
    "attacks": [ATTACK],
    "budget": BUDGET,
    "threat": "white_box",
    "seed": 3,
}


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("clean_accuracy", [1.5, -3, float("nan"), True, 10**400, "1e+400", "0.5", None]),
        ("model", ["x" * 1000, 3, "\ud800"]),
        ("threat", ["none", 10**400]),
        ("seed", [-1, 2**32, 10**400, 1.5, True]),
        ("budget", [{"nodes": 3}, BUDGET | {"max_injected_nodes": "2"}, 3]),
        ("budget", [BUDGET | {"feature_limits": None}, BUDGET | {"max_injected_nodes": -1}]),
        ("attacks", [[], [3], [ATTACK, ATTACK]]),
        ("attacks", [[ATTACK | {"name": "clean"}], [ATTACK | {"kind": "poison"}]]),
        ("attacks", [[ATTACK | {"name": "\ud800"}], [ATTACK | {"accuracy": 10**400}]]),
    ],
)
def test_what_no_report_says(tmp_path: Path, key: str, values: list[Any]) -> None:
    for value in values:
        text = json.dumps(REPORT | {key: value}).replace("1e+400", "1" * 5000)
        (tmp_path / "report.json").write_text(text)
        with pytest.raises(DataError, match=f"{key}|text: Invalid JSON"):
            read_claims(tmp_path)


@pytest.mark.parametrize("text", ["{", "\x80", "[" * 100_000, " " * 10_000_001])
def test_a_file_that_is_no_report(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=r"report\.json"):
        read_claims(tmp_path)


def test_a_device_a_pipe_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    for make in (lambda: None, lambda: os.mkfifo(path), lambda: path.symlink_to("/dev/zero")):
        path.unlink(missing_ok=True)
        make()
        with pytest.raises(DataError, match=r"report\.json"):
            read_claims(tmp_path)
