from typing import Any

from robust_diffusion.paper.claims import load_claims, side_by_side, variants_of
from robust_diffusion.paper.claims.columns import PUBLISHED, WORST_CASE
from tests.paper.claims.synthetic import records_of, with_moments

EVERY = load_claims()
CLAIM = EVERY.claims["edge-preserving-beats-grand"]


def flows(fidelity: str, *datasets: str) -> list[dict[str, Any]]:
    means = {"mean_curvature": 70, "beltrami": 70, "grand": 40}
    return [
        record
        for dataset in datasets
        for i, (model, mean) in enumerate(means.items())
        for record in records_of(
            "table-3",
            {"model": model, "dataset": dataset},
            {attack: with_moments(mean, 1, 5, i) for attack in ("speit", "tdgia")},
            fidelity=fidelity,
        )
    ]


def test_every_column_rests_on_the_same_datasets() -> None:
    records = [*flows("paper", "cora", "pubmed"), *flows("released", "citeseer", "pubmed")]
    (row,) = side_by_side([CLAIM], EVERY, records, variants_of(records))
    assert row.datasets == ("pubmed",)
    assert list(row.columns) == ["paper", "released", PUBLISHED, WORST_CASE]
    for name in ("paper", "released", PUBLISHED):
        judged = row.columns[name]
        assert judged is not None
        assert judged.datasets == ("pubmed",)
        assert [finding.label.split()[0] for finding in judged.findings] == ["pubmed"] * 4
    assert row.recorded


def test_a_column_without_records_restricts_no_other() -> None:
    (row,) = side_by_side([CLAIM], EVERY, flows("paper", "cora"), ["paper", "released"])
    paper, released = row.columns["paper"], row.columns["released"]
    assert paper is not None
    assert released is not None
    assert (row.datasets, paper.verdict) == (("cora",), "supported")
    assert (released.verdict, released.findings) == ("undecided", ())
    (row,) = side_by_side([CLAIM], EVERY, [], ["paper"])
    assert row.datasets == ("cora", "citeseer", "pubmed")
    assert not row.recorded
