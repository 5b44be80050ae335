import pandas as pd
import pytest

from robust_diffusion.results.markdown import aligned, markdown_table

FRAME = pd.DataFrame({"name": ["heat", "[bold]x"], "time [ms]": ["81.0 ± 0.5", "7"]})


def test_columns_line_up() -> None:
    assert markdown_table(FRAME, ["name"]).splitlines() == [
        "| name    |  time [ms] |",
        "| ------- | ---------: |",
        "| heat    | 81.0 ± 0.5 |",
        "| [bold]x |          7 |",
    ]


@pytest.mark.parametrize(("text", "cell"), [("a|b", "a\\|b"), ("a\nb", "a b")])
def test_a_cell_stays_one_cell(text: str, cell: str) -> None:
    *_, row = aligned(["a", "b"], [[text, "1"]], left=2)
    assert row == f"| {cell.ljust(3)} | 1   |"
