"""Claims judged side by side, in every column on the same datasets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robust_diffusion.evaluation.records import Record
from robust_diffusion.paper.claims.claim import Claim, Claims
from robust_diffusion.paper.claims.evidence import published_evidence, recorded_evidence
from robust_diffusion.paper.claims.judge import judge, known_datasets
from robust_diffusion.paper.claims.judgement import Judgement

PUBLISHED = "published"
WORST_CASE = "worst case"
"""Columns beside the variants: by the printed means; of the first variant, under worst cases."""


@dataclass(frozen=True)
class Row:
    """One claim in every column."""

    claim: Claim
    datasets: tuple[str, ...]  # those of which every column that has records has some
    columns: Mapping[str, Judgement | None]  # `None` where a claim has no such column

    @property
    def recorded(self) -> bool:
        """True if the records of some variant test it."""
        return any(j and j.shown for name, j in self.columns.items() if name != PUBLISHED)


def variants_of(records: Sequence[Record]) -> list[str]:
    """Every variant that was run; the default one if none was."""
    return sorted({r["fidelity"] for r in records if r.get("fidelity")}) or ["paper"]


def side_by_side(
    wanted: Sequence[Claim], claims: Claims, records: Sequence[Record], variants: Sequence[str]
) -> list[Row]:
    """Judge claims by the records of each variant, by the printed means and under worst cases."""
    columns = {name: recorded_evidence(records, fidelity=name) for name in variants}
    columns[PUBLISHED] = published_evidence
    rows = []
    for claim in wanted:
        known = [found for e in columns.values() if (found := known_datasets(claim.members(), e))]
        shared = set.intersection(*known) if known else set()
        judged = {name: judge(claim, e, claims, datasets=shared) for name, e in columns.items()}
        datasets = max((judgement.datasets for judgement in judged.values()), key=len)
        worst = judged[variants[0]].worst_case
        rows.append(Row(claim, datasets, {**judged, WORST_CASE: worst}))
    return rows
