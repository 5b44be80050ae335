"""Judgement of a claim: its verdict, and the findings behind it."""

from dataclasses import dataclass
from typing import Literal

from robust_diffusion.paper.claims.claim import Claim
from robust_diffusion.paper.claims.contrast import Estimate
from robust_diffusion.paper.claims.group import Group

Verdict = Literal["supported", "contradicted", "undecided"]
State = Literal["holds", "contradicted", "undecided", "too few seeds", "no data"]
"""Significant; interval wholly on the wrong side; neither; not tested; no value at all."""


@dataclass(frozen=True)
class Finding:
    """Result of one comparison of a claim, or of the mean of all."""

    label: str
    state: State
    estimate: Estimate | None = None  # its interval is simultaneous over the comparisons
    p: float | None = None  # corrected by Holm's method, unless every comparison has to hold
    missing: tuple[Group, ...] = ()  # groups of too few seeds


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim, and the findings behind it."""

    claim: Claim
    verdict: Verdict
    datasets: tuple[str, ...]  # that it rests on
    absent: tuple[str, ...]  # those of the claim that it leaves out
    findings: tuple[Finding, ...]  # of its comparisons
    shown: Finding | None  # the weakest comparison; the mean of an average; the largest difference
    p: float | None  # of the test that decided
    seeds: tuple[int, int] | None  # fewest and most values of a group
    mlp: "Judgement | None" = None  # of the same claim against an MLP
    worst_case: "Judgement | None" = None  # of the same claim under the worst case of each model

    @property
    def estimate(self) -> Estimate | None:
        """The effect that stands for the claim."""
        return None if self.shown is None else self.shown.estimate

    def count(self, state: State) -> int:
        """Number of comparisons in a state."""
        return sum(finding.state == state for finding in self.findings)
