import os

import pytest

from robust_diffusion.paper.agreement import (
    agreement,
    published_beside_measured,
    render_agreement,
)
from tests.paper.records import finished
from tests.paper.tables import golden, table_of

# Printed for Cora: clean 75.93 and 1.46, SPEIT 61.87 and 0.49, TDGIA 62.84 and 1.17.
RECORDS = [
    finished(0.75, 0.4, seed=0),
    finished(0.77, 0.4, seed=1),
    finished(0.70, 0.4, flow="heat"),
]


def test_entries_outside_the_tolerance_come_furthest_first() -> None:
    found = agreement([table_of(3, RECORDS)])
    outside = found.outside.cells
    assert list(outside["Entry"]) == ["Cora SPEIT, Beltrami", "Cora TDGIA, Beltrami"]
    # The measured ones do not spread, so the pooled deviation is the reported over the root of 2.
    assert list(outside["In pooled sd"]) == pytest.approx(
        [(40 - 61.87) / (0.49 / 2**0.5), (40 - 62.84) / (1.17 / 2**0.5)]
    )
    assert (found.entries["within"].sum(), found.undecided) == (1, 3)


def test_markdown_is_the_golden_file() -> None:
    tables = [table_of(number, RECORDS) for number in (1, 3)]
    text = render_agreement({"paper": tables, "released": [table_of(3, [])]})
    assert text == golden("agreement.md", text)


@pytest.mark.real_data
@pytest.mark.slow
def test_real_graphs_equal_their_published_statistics() -> None:
    frame = published_beside_measured(os.environ["ROBUST_DIFFUSION_DATA"])
    measured = frame.query("measured != 'no data'")
    assert {"cora", "coauthor", "amazon_computer"} <= set(measured["dataset"])
    differing = measured[measured["equal"] != "yes"]
    assert set(differing["dataset"] + " " + differing["statistic"]) <= {"pubmed edges"}
    assert set(differing["equal"]) <= {"documented"}
