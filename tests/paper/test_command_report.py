import json
from pathlib import Path

import pytest

from robust_diffusion.paper.commands import run_report_command
from tests.paper.records import finished, seeds


def write(path: Path, records: list[dict[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_several_files_are_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write(tmp_path / "a.jsonl", seeds([0.6], flow="heat"))
    second = write(tmp_path / "b.jsonl", [*seeds([0.5]), finished(fidelity="released")])
    (tmp_path / "layer.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    options = ["--records", str(first), "--records", str(second), "--figures", str(tmp_path)]
    out = tmp_path / "deep" / "page.html"
    run_report_command([*options, "--out", str(out)])
    assert capsys.readouterr().out == f"{out}\n"
    page = out.read_text(encoding="utf-8")
    assert "3 finished, 0 failed; full paper (2), full released (1)" in page
    assert 'alt="layer"' in page
