"""Layouts have every printed number of their table once, and grow by what was run."""

from typing import Any

import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.agreement import agreement
from robust_diffusion.paper.layout import (
    NOT_PRINTED,
    load_layout,
    parse_layout,
    printed_number,
    printed_rows,
    table_numbers,
)
from robust_diffusion.paper.paper_table import PaperTable
from tests.paper.records import Record, finished, seeds
from tests.paper.tables import table_of

SECTION: dict[str, Any] = {
    "number": 99,
    "name": "things",
    "label": "flows",
    "caption": "A table.",
    "headings": ["Dataset", "Attack"],
    "rows": [{"dataset": ["cora", "pubmed"], "attack": ["clean", "speit"]}],
    "columns": [{"model": ["heat", "beltrami"]}],
    "best": "row",
}
BELTRAMI = {"table": "flows", "dataset": "cora", "attack": "speit", "model": "beltrami"}


@pytest.mark.parametrize("number", table_numbers())
def test_a_layout_has_every_printed_number_of_its_table_once(number: int) -> None:
    layout = load_layout(number)
    shown = {tuple(sorted(entry.printed.items())) for entry in layout.entries}
    rows = printed_rows(layout.label)
    assert len(shown) == len(layout.entries) == len(rows)
    assert all(layout.printed(entry) is not NOT_PRINTED for entry in layout.entries)
    assert all(float(row["mean"] or 0) >= 0 and (row["mean"] or not row["std"]) for row in rows)


@pytest.mark.parametrize("where", [BELTRAMI | {"model": "nope"}, {"table": "flows"}])
def test_what_names_not_exactly_one_printed_number_is_refused(where: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"table: \d+ printed numbers with table=flows"):
        printed_number(where)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"nope": 1}, "table=nope"),
        ({"number": 0}, "table.number=0"),
        ({"best": "both"}, "table.best=both"),
        ({"kind": "speed"}, "table.kind=speed"),
        ({"below": {"headings": []}}, "table.headings=[]"),
        ({"columns": [{"model": ["nope"]}]}, "table.model=nope"),
        ({"columns": [{"nope": ["heat"]}]}, "table.axis=nope"),
        ({"headings": ["Dataset"]}, "table.headings=['Dataset']"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_layout(SECTION | changes)
    assert str(refused.value).startswith(key)


def columns(table: PaperTable) -> list[str]:
    return [column.label for column in table.layout.grids[0].columns]


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
    number: int, options: dict[str, Any], label: str
) -> None:
    own = {"experiment": f"table-{number}"}
    record = finished(0.7, {"speit": 0.5, "tdgia": 0.4}, **own, **options)
    shown = table_of(number, [finished(0.75, **own), record])
    assert columns(shown) == [*columns(table_of(number, [])), label]
    last = [row[-1] for row in shown.grids[0][1]]
    assert [e.mean for e in last if e.mean is not None] == pytest.approx([70, 50, 40])
    datasets = {e.keys["dataset"] for e in last if e.mean is not None}
    assert datasets == {record["dataset"]}
    assert all(e.reported.mean is None and e.p is None and e.difference is None for e in last)


def test_what_a_table_lacks_changes_neither_its_entries_nor_their_agreement() -> None:
    def compared(records: list[Record]) -> tuple[list[Any], list[Any]]:
        table = table_of(3, records)
        numbers = [
            (e.mean, len(e.runs), e.p_holm, e.deviations)
            for _, _, e in table
            if {"my_flow", "my_graph"}.isdisjoint(e.keys.values())
        ]
        names = ["row", "column", "mean", "p_holm", "deviations", "within"]
        return numbers, agreement([table]).entries[names].to_numpy().tolist()

    records = [*seeds([0.7, 0.72, 0.74]), *seeds([0.5, 0.52], flow="heat")]
    own = [*seeds([0.1, 0.2], flow="my_flow"), *seeds([0.1, 0.2], dataset="my_graph")]
    assert compared([*records, *own]) == compared(records)
