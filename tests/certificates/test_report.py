import json
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.certificates.report import certificate_tables, read_certificates
from robust_diffusion.errors import DataError

ROOT = Path(__file__).parents[2]


def record(**changes: Any) -> dict[str, Any]:
    curve = [
        {"budget": 0, "certified": 0.8, "attacked": 0.9, "broken": 0},
        {"budget": 2, "certified": 0.25, "attacked": 0.5, "broken": 0},
    ]
    own = {"certificate": "sparse", "unit": "flipped edges", "curve": curve}
    return own | {"plain_accuracy": 0.95, "clean_accuracy": 0.9, "abstained": 0.1} | changes


def test_reports_are_rows_by_scheme(tmp_path: Path) -> None:
    broken = [{"budget": 1, "certified": 0.8, "attacked": 0.7, "broken": 3}]
    of = {
        "gcn": record(),
        "mlp": record(curve=[{"budget": 0, "certified": 1.0}]),
        "other": record(certificate="bi_smoothing", unit="injected nodes", curve=broken),
    }
    for name, report in of.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "certificate.json").write_text(json.dumps(report))
    assert read_certificates([tmp_path]) == of
    assert read_certificates([tmp_path / "gcn"]) == {"gcn": of["gcn"]}
    tables = certificate_tables(read_certificates([tmp_path]))
    sparse, nodes = (tables[title] for title in sorted(tables, reverse=True))
    assert sparse.set_index("model").loc["gcn", ["smoothed", "0", "2"]].tolist() == [
        "90.00",
        "80.00 / 90.00",
        "25.00 / 50.00",
    ]
    assert sparse.set_index("model").loc["mlp", ["0", "2"]].tolist() == ["100.00", ""]
    assert sparse.set_index("model")["attacks"].to_dict() == {
        "gcn": "all targets together",
        "mlp": "none",
    }
    equal = [{"budget": n, "certified": 0.8, "attacked": 0.9, "broken": 0} for n in range(3)]
    (empty,) = certificate_tables({"a": record(curve=equal, local=True)}).values()
    assert empty["attacks"].tolist() == ["one target at a time, no effect"]
    assert nodes["1"].tolist() == ["80.00 / 70.00!"]


@pytest.mark.parametrize("text", [None, "{", "[1]"])
def test_what_is_no_report_is_told(tmp_path: Path, text: str | None) -> None:
    if text:
        (tmp_path / "certificate.json").write_text(text)
    with pytest.raises(DataError, match=f"^{tmp_path}"):
        read_certificates([tmp_path])
