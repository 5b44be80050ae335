import io

import pandas as pd
import pytest

from robust_diffusion.paper.layout import load_layout, table_numbers
from robust_diffusion.paper.paper_table import PaperTable, build_table
from robust_diffusion.paper.render_csv import render_csv, to_frame
from tests.paper.tables import ODD, everything


def read(table: PaperTable) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(render_csv(table)))


def test_what_is_read_back_is_what_was_there() -> None:
    table = everything()
    frame = read(table)
    assert len(frame) == 36
    for (row, column, entry), line in zip(table, frame.to_dict("records"), strict=True):
        assert (line["row"], line["column"]) == (row.label, column.label)
        assert (line["dataset"], line["model"]) == (
            entry.line.keys["dataset"],
            entry.line.keys["model"],
        )
        assert (line["state"], line["n"], line["graph"]) == (entry.state, entry.n, entry.graph)
        for key, value in {
            "mean": entry.mean,
            "std": entry.std,
            "printed_mean": entry.printed.mean,
            "printed_std": entry.printed.std,
            "difference": entry.difference,
            "deviations": entry.deviations,
            "p": entry.p,
            "p_holm": entry.p_holm,
            "rank": entry.rank,
        }.items():
            assert pd.isna(line[key]) if value is None else line[key] == pytest.approx(value)


def test_marks_and_seeds_are_told() -> None:
    frame = read(everything()).set_index(["row", "column"])
    assert frame.loc[("Cora clean", "Beltrami"), "seeds"] == "0 1 2 3 4"
    assert frame.loc[("Cora clean", "Heat"), "marks"] == f"failed: failed: {ODD}"
    assert frame.loc[("PubMed clean", "Beltrami"), "marks"].startswith("no data: no data: ")


def test_all_tables_have_the_same_columns() -> None:
    frames = [to_frame(build_table(load_layout(number), [])) for number in table_numbers()]
    assert len({tuple(frame.columns) for frame in frames}) == 1
    together = pd.concat(frames)
    assert not together.duplicated(["table", "row", "column"]).any()


def test_a_smoke_run_says_so_in_every_line() -> None:
    assert set(read(everything(smoke=True))["scale"]) == {"smoke"}
