import pandas as pd
import pytest

from robust_diffusion.paper.agreement import agreement
from robust_diffusion.paper.layout import load_layout
from robust_diffusion.paper.paper_table import PaperTable
from tests.paper.records import Record, finished, seeds
from tests.paper.tables import build_table


def table(number: int, *records: Record) -> PaperTable:
    own = [record | {"experiment": f"table-{number}"} for record in records]
    return build_table(load_layout(number), own)


def columns(shown: PaperTable) -> list[str]:
    return [column.label for column in shown.layout.grids[0].columns]


@pytest.mark.parametrize(
    ("number", "options", "label"),
    [
        (3, {"flow": "my_flow"}, "my_flow"),
        (3, {"flow": "heat_plus"}, "Heat⁺"),
        (3, {"flow": "gat"}, "graph_pde gat"),
        (3, {"model": "my_model", "flow": "beltrami"}, "my_model"),
        (3, {"settings": {"flow": {"spectral_norm": False}}}, "Beltrami w/o Lips."),
        (1, {"model": "mlp", "flow": None}, "MLP"),
        (1, {"flow": "grand"}, "GRAND/BLEND"),
        (12, {"model": "gcn", "dataset": "coauthor"}, "GCN"),
    ],
)
def test_a_model_that_the_table_lacks_is_its_last_column(
    number: int, options: dict[str, object], label: str
) -> None:
    record = finished(0.7, {"speit": 0.5, "tdgia": 0.4}, **options)  # type: ignore[arg-type]
    shown = table(number, finished(0.75), record)
    assert columns(shown) == [*columns(table(number)), label]
    dataset = record["dataset"]
    own = [row[-1] for row in shown.grids[0][1]]
    assert [e.mean for e in own if e.mean is not None] == pytest.approx([70, 50, 40])
    assert {e.keys["dataset"] for e in own if e.mean is not None} == {dataset}
    assert all(e.reported.mean is None and e.p is None and e.difference is None for e in own)


def test_what_a_table_lacks_changes_neither_its_entries_nor_their_agreement() -> None:
    records = [*seeds([0.7, 0.72, 0.74]), *seeds([0.5, 0.52], flow="heat")]
    own = [*seeds([0.1, 0.2], flow="my_flow"), *seeds([0.1, 0.2], dataset="my_graph")]
    without, with_them = table(3, *records), table(3, *records, *own)
    alike = [e for _, _, e in with_them if {"my_flow", "my_graph"}.isdisjoint(e.keys.values())]
    compared = [(e.mean, e.n, e.p_holm, e.deviations) for e in alike]
    assert compared == [(e.mean, e.n, e.p_holm, e.deviations) for _, _, e in without]
    found, other = agreement([without]), agreement([with_them])
    columns = ["row", "column", "mean", "p_holm", "deviations", "within"]
    pd.testing.assert_frame_equal(
        found.entries[columns].reset_index(drop=True), other.entries[columns].reset_index(drop=True)
    )
