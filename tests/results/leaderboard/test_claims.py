import json
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.errors import DataError
from robust_diffusion.results.leaderboard.claims import read_claims

ATTACK = {
    "name": "pgd/GCN",
    "kind": "injection",
    "accuracy": 0.5,
    "is_control": False,
    "made_on": "GCN",
    "spent": {},
}
REPORT = {
    "model": "Mine",
    "clean_accuracy": 0.8,
    "attacks": [ATTACK],
    "budget": {"max_injected_nodes": 2, "max_edges_per_injected_node": 3},
    "threat": "white_box",
    "seed": 3,
}


def saved(folder: Path, report: Any) -> Path:
    (folder / "report.json").write_text(json.dumps(report))
    return folder


def test_a_report_is_read(tmp_path: Path) -> None:
    claims = read_claims(saved(tmp_path, REPORT))
    assert (claims.robust_accuracy, claims.budget.max_injected_nodes) == (0.5, 2)
    assert claims.graph(claims.attacks[0]) == tmp_path / "graph-pgd-GCN.safetensors"
    assert (claims.dataset, claims.weights) == ("", "")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"clean_accuracy": 1.5}, "no proper clean_accuracy"),
        ({"clean_accuracy": float("nan")}, "no proper clean_accuracy"),
        ({"model": "x" * 1000}, "no proper model"),
        ({"threat": "none"}, "no proper threat"),
        ({"seed": -1}, "no proper seed"),
        ({"budget": {"nodes": 3}}, "its budget is none"),
        ({"budget": REPORT["budget"] | {"max_injected_nodes": "2"}}, "its budget is none"),
        ({"attacks": []}, "not at all"),
        ({"attacks": [ATTACK, ATTACK]}, "are named pgd/GCN, pgd/GCN"),
        ({"attacks": [ATTACK | {"name": "clean"}]}, "are named clean"),
        ({"attacks": [ATTACK | {"kind": "poison"}]}, r"no proper attacks\[0\]\.kind"),
        ({"attacks": [3]}, r"attacks\[0\] is no set of claims"),
    ],
)
def test_what_no_report_says(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_claims(saved(tmp_path, REPORT | changes))


def test_an_attack_names_no_file_elsewhere(tmp_path: Path) -> None:
    name = "../../x"
    claims = read_claims(saved(tmp_path, REPORT | {"attacks": [ATTACK | {"name": name}]}))
    assert claims.graph(claims.attacks[0]).parent == tmp_path


@pytest.mark.parametrize("text", ["{", "\x80", "[" * 100_000])
def test_a_file_that_is_no_report(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match="cannot be read as a report"):
        read_claims(tmp_path)


def test_a_folder_without_a_report(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"report\.json: not found"):
        read_claims(tmp_path)
