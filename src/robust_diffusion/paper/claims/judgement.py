"""Judgement of a claim: its verdict, and the findings behind it."""

from dataclasses import dataclass
from typing import Literal

from robust_diffusion.paper.claims.claim import Claim
from robust_diffusion.paper.claims.contrast import Estimate
from robust_diffusion.paper.claims.group import Group

Verdict = Literal["supported", "not supported", "not enough data"]
State = Literal["holds", "undecided", "contradicted", "no data"]
"""Significant; neither; confidence interval on the other side; too few seeds."""

Unit = Literal["points", "factor"]


@dataclass(frozen=True)
class Finding:
    """Result of testing one of a claim's statements."""

    label: str
    dataset: str | None  # if the claim is about several
    state: State = "no data"
    estimate: Estimate | None = None
    p: float | None = None
    p_corrected: float | None = None  # by Holm's method, unless every statement has to hold
    missing: tuple[Group, ...] = ()  # groups of too few seeds
    empty: bool = False  # no group has a single value


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim, and the findings behind it."""

    claim: Claim
    verdict: Verdict  # `not supported` does not mean refuted; findings say what is
    estimate: Estimate | None  # mean effect; of the test `differ` the largest
    p: float | None  # of the test that decided
    unit: Unit  # effects of factors are logarithms
    findings: tuple[Finding, ...]
    absent: tuple[str, ...]  # datasets without any record, on which there is no verdict
    seeds: tuple[int, int] | None  # fewest and most values of a group

    @property
    def weakest(self) -> Finding | None:
        """The statement with the largest p-value, which decides a claim about all."""
        tested = [finding for finding in self.findings if finding.p is not None]
        return max(tested, key=lambda f: f.p or 0.0) if tested else None
