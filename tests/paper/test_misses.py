from robust_diffusion.paper.layout import load_layout
from robust_diffusion.paper.misses import agreement, render_agreement
from robust_diffusion.paper.paper_table import build_table
from tests.paper.records import finished

# Printed for Cora: clean 75.93 and 1.46, SPEIT 61.87 and 0.49, TDGIA 62.84 and 1.17.
RECORDS = [
    finished(0.75, 0.4, seed=0),
    finished(0.77, 0.4, seed=1),
    finished(0.70, 0.4, flow="heat"),
]


def test_entries_beyond_two_pooled_deviations_are_missed_the_furthest_first() -> None:
    found = agreement([build_table(load_layout(3), RECORDS)])
    assert [(miss.row, miss.column) for miss in found.missed] == [
        ("Cora SPEIT", "Beltrami"),
        ("Cora TDGIA", "Beltrami"),
    ]
    speit, tdgia = found.missed
    # Ours do not spread, so the pooled deviation is the printed one over the root of 2.
    assert abs(speit.deviations - (40 - 61.87) / (0.49 / 2**0.5)) < 1e-9
    assert abs(tdgia.deviations - (40 - 62.84) / (1.17 / 2**0.5)) < 1e-9
    assert (found.agreeing, found.within, found.undecided) == ({3: 1}, 1, 3)


def test_in_markdown_each_reading_says_how_many_agree() -> None:
    tables = [build_table(load_layout(number), RECORDS) for number in (1, 3)]
    nothing = [build_table(load_layout(3), [])]
    text = render_agreement({"paper": tables, "released": nothing})
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["Reading", "Table 3", "All", "Once each"] in rows
    assert ["paper", "1 of 3", "1 of 3", "1 of 3"] in rows
    assert ["released", "-", "-", "-"] in rows
    miss = ["3", "Cora SPEIT, Beltrami", "40.00 ± 0.00", "61.87 ± 0.49", "−21.87", "−63.1"]
    assert miss in rows
    assert text.endswith("fidelity=paper: 3 more have one seed or no printed deviation.\n")


def test_all_tables_are_counted_together_and_what_they_share_once() -> None:
    text = render_agreement({"paper": [build_table(load_layout(3), RECORDS)] * 2})
    assert [cell.strip() for cell in text.splitlines()[4].split("|")[2:-1]] == [
        "2 of 6",
        "2 of 6",
        "1 of 3",
    ]
