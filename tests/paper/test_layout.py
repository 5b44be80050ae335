"""Every layout stands for every printed number of its table, once."""

from typing import Any

import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.layout import (
    NOT_PRINTED,
    load_layout,
    parse_layout,
    printed_rows,
    table_numbers,
)

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


@pytest.mark.parametrize("number", table_numbers())
def test_a_layout_has_every_printed_number_of_its_table_once(number: int) -> None:
    layout = load_layout(number)
    shown = {tuple(sorted(entry.printed.items())) for entry in layout.entries}
    assert len(shown) == len(layout.entries)
    assert all(layout.printed(entry) is not NOT_PRINTED for entry in layout.entries)
    assert len(shown) == len(printed_rows(layout.label))


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
