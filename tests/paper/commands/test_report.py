import json
from pathlib import Path

import pytest

from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.paper.commands import report as report_command
from robust_diffusion.paper.commands.report import run_report_command
from tests.paper.records import finished, seeds

DEFAULT = Path("outputs/report.html")


def write(path: Path, records: list[dict[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_the_page_is_written_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    write(Path("outputs/records.jsonl"), seeds([0.6, 0.61]))
    run_report_command([])
    assert capsys.readouterr().out == f"{DEFAULT}\n"
    assert "60.50 ± 0.71" in DEFAULT.read_text(encoding="utf-8")


def test_several_files_are_one_page(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", seeds([0.6], flow="heat"))
    second = write(tmp_path / "b.jsonl", seeds([0.5]))
    out = tmp_path / "deep" / "page.html"
    run_report_command(["--records", str(first), "--records", str(second), "--out", str(out)])
    page = out.read_text(encoding="utf-8")
    assert "2 finished" in page


@pytest.mark.parametrize(
    ("option", "value"), [("--fidelity=released", "10.00"), ("--scale=smoke", "20.00")]
)
def test_other_runs_are_other_pages(option: str, value: str, tmp_path: Path) -> None:
    records = [finished(0.1, fidelity="released"), finished(0.2, scale="smoke")]
    path = write(tmp_path / "a.jsonl", records)
    run_report_command(["--records", str(path), option])
    assert f">{value}<" in DEFAULT.read_text(encoding="utf-8")


def test_figures_of_a_folder_are_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "layer.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    run_report_command(["--figures", str(tmp_path)])
    assert "data:image/svg+xml;base64," in DEFAULT.read_text(encoding="utf-8")


def test_records_that_were_named_have_to_be_there() -> None:
    with pytest.raises(DataError, match=r"--records nowhere\.jsonl: not found; name a file"):
        run_report_command(["--records", "nowhere.jsonl"])


def test_a_file_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_command, "render_page", lambda *_, **__: "<html>")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--out .*page\.html: cannot be written \("):
        run_report_command(["--out", str(tmp_path / "file" / "page.html")])
