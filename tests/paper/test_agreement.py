import pytest

from robust_diffusion.paper.agreement import agreement, render_agreement
from robust_diffusion.paper.layout import load_layout
from tests.paper.records import finished
from tests.paper.tables import build_table, golden

# Printed for Cora: clean 75.93 and 1.46, SPEIT 61.87 and 0.49, TDGIA 62.84 and 1.17.
RECORDS = [
    finished(0.75, 0.4, seed=0),
    finished(0.77, 0.4, seed=1),
    finished(0.70, 0.4, flow="heat"),
]


def test_entries_outside_the_tolerance_come_furthest_first() -> None:
    found = agreement([build_table(load_layout(3), RECORDS)])
    assert list(found.outside["row"]) == ["Cora SPEIT", "Cora TDGIA"]
    # The measured ones do not spread, so the pooled deviation is the reported over the root of 2.
    assert list(found.outside["deviations"]) == pytest.approx(
        [(40 - 61.87) / (0.49 / 2**0.5), (40 - 62.84) / (1.17 / 2**0.5)]
    )
    assert (found.entries["within"].sum(), found.undecided) == (1, 3)


def test_markdown_is_the_golden_file() -> None:
    tables = [build_table(load_layout(number), RECORDS) for number in (1, 3)]
    text = render_agreement({"paper": tables, "released": [build_table(load_layout(3), [])]})
    assert text == golden("agreement.md", text)
