"""Every layout stands for every printed number of its table, once."""

from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.layout import load_layout, parse_layout, table_numbers
from robust_diffusion.paper.printed import printed_rows

ROOT = Path(__file__).parents[2]
NUMBERS = sorted(
    int(path.stem.removeprefix("table-"))
    for path in (ROOT / "conf" / "experiment").glob("table-*.yaml")
    if "\ntable:\n" in path.read_text()
)
SECTION: dict[str, Any] = {
    "number": 99,
    "label": "flows",
    "caption": "A table.",
    "headings": ["Dataset", "Attack"],
    "rows": [{"dataset": ["cora", "pubmed"], "attack": ["clean", "speit"]}],
    "columns": [{"model": ["heat", "beltrami"]}],
    "best": "row",
}


def test_the_tables_with_recorded_cells_have_a_layout() -> None:
    assert {1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} <= set(NUMBERS)
    assert table_numbers() == NUMBERS


@pytest.mark.parametrize("number", NUMBERS)
def test_a_layout_has_every_printed_number_of_its_table_once(number: int) -> None:
    layout = load_layout(number)
    shown = [
        part.printed(row, column).row
        for part in layout.parts
        for row in part.rows
        for column in part.columns
    ]
    printed = [i for i, row in enumerate(printed_rows()) if row["table"] == layout.label]
    assert sorted(shown) == printed
    assert printed


@pytest.mark.parametrize("number", NUMBERS)
def test_rows_can_be_told_apart(number: int) -> None:
    layout = load_layout(number)
    for lines in (layout.rows, layout.columns):
        assert len({line.labels for line in lines}) == len(lines)
    entries = [layout.at(row, column) for row in layout.rows for column in layout.columns]
    assert len({tuple(line.keys.items()) for line in entries}) == len(entries)


def test_rows_are_a_product_with_the_first_axis_slowest() -> None:
    layout = parse_layout(SECTION)
    assert [row.labels for row in layout.rows] == [
        ("Cora", "clean"),
        ("Cora", "SPEIT"),
        ("PubMed", "clean"),
        ("PubMed", "SPEIT"),
    ]
    assert layout.blocks == [[0, 1], [2, 3]]


def test_a_mapping_gives_labels() -> None:
    rows = [{"dataset": ["cora"], "attack": {"clean": "Before", "speit": "After"}}]
    layout = parse_layout(SECTION | {"rows": rows})
    assert [row.label for row in layout.rows] == ["Cora Before", "Cora After"]
    assert layout.rows[1].printed["attack"] == "speit"


def test_two_axes_share_the_papers_parameter() -> None:
    layout = load_layout(5)
    first, last = layout.rows[0], layout.rows[-1]
    assert first.printed["parameter"] == "implicit_adams;tau=1"
    assert first.record == {"solver": "implicit_adams", "config.model.solver.num_steps": 1}
    assert (last.printed["parameter"], last.record) == ("dopri5", {"solver": "dopri5"})


def test_a_second_grid_has_lines_of_its_own_and_the_rest_of_the_first() -> None:
    below = {"headings": ["Attack"], "rows": [{"attack": ["tdgia"]}], "fixed": {"dataset": "cora"}}
    layout = parse_layout(SECTION | {"below": below})
    assert [len(part.rows) for part in layout.parts] == [4, 1]
    second = layout.parts[1]
    assert second.headings == ("Attack",)
    assert (second.columns, second.caption) == (layout.columns, layout.caption)
    assert second.at(second.rows[0], second.columns[0]).printed["dataset"] == "cora"
    assert parse_layout(SECTION).parts == [parse_layout(SECTION)]


def test_another_dataset_fills_the_table_beside_the_same_printed_numbers() -> None:
    layout = load_layout(7).on("cora")
    for part, own in zip(layout.parts, load_layout(7).parts, strict=True):
        row, column = part.rows[0], part.columns[0]
        assert part.at(row, column).record["dataset"] == "cora"
        assert part.at(row, column).keys["dataset"] == "cora"
        assert part.printed(row, column) == own.printed(row, column)


def test_a_layout_knows_what_its_experiment_sweeps() -> None:
    assert load_layout(3).swept == {"seed", "dataset", "flow"}
    assert load_layout(5).swept == {"seed", "solver", "solver.num_steps"}


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


@pytest.mark.parametrize("key", sorted(SECTION))
def test_a_layout_lacks_nothing(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"table\.{key}"):
        parse_layout({k: v for k, v in SECTION.items() if k != key})


def test_an_unknown_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="table=99"):
        load_layout(99)
