import io

import pandas as pd
import pytest
from rich.console import Console

from robust_diffusion.results.markdown import markdown_table, print_table

FRAME = pd.DataFrame({"name": ["heat", "[bold]x"], "accuracy": ["81.0 ± 0.5", "7"]})


def test_is_a_markdown_table() -> None:
    stream = io.StringIO()
    Console(file=stream, width=80).print(markdown_table(FRAME, ["name"]))
    lines = [line.strip() for line in stream.getvalue().splitlines() if line.strip()]
    assert lines == [
        "| name    |   accuracy |",
        "|---------|------------|",
        "| heat    | 81.0 ± 0.5 |",
        "| [bold]x |          7 |",
    ]


@pytest.mark.parametrize("width", ["20", "80"])
def test_is_printed_in_full_whatever_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    cell = "x" * 300
    print_table("[red]title", pd.DataFrame({"a": [cell], "b": [1]}), ["a"])
    title, *rest = capsys.readouterr().out.splitlines()
    assert title == "[red]title"
    assert any(cell in line and line.rstrip().endswith("1 |") for line in rest)


def test_a_table_without_rows_is_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("nothing", pd.DataFrame(columns=["a", "b"]), [])
    assert "| a | b |" in capsys.readouterr().out


def test_square_brackets_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("times", pd.DataFrame({"time [ms]": ["[speit]"]}), left=[])
    out = capsys.readouterr().out
    assert "time [ms]" in out
    assert "[speit]" in out
