import io

import pandas as pd

from robust_diffusion.paper.layout import load_layout, table_numbers
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.render_csv import render_csv, to_frame
from tests.paper.tables import build_table, everything, golden


def read(table: PaperTable) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(render_csv(table)))


def test_is_the_golden_file() -> None:
    text = render_csv(everything())
    expected = pd.read_csv(io.StringIO(golden("table.csv", text)))
    pd.testing.assert_frame_equal(read(everything()), expected)
    assert text.splitlines()[0].split(",") == list(expected.columns)


def test_all_tables_have_the_same_columns() -> None:
    frames = [to_frame(build_table(load_layout(number), [])) for number in table_numbers()]
    assert len({tuple(frame.columns) for frame in frames}) == 1
    together = pd.concat(frames)
    assert not together.duplicated(["table", "row", "column"]).any()


def test_a_smoke_run_says_so_in_every_line() -> None:
    assert set(read(everything(smoke=True))["scale"]) == {"smoke"}
