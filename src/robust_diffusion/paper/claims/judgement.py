"""Judgement of a claim: its verdict, and the findings behind it."""

from dataclasses import dataclass
from typing import Literal

from robust_diffusion.paper.claims.claim import Claim
from robust_diffusion.paper.claims.contrast import Estimate
from robust_diffusion.paper.claims.group import Group

Verdict = Literal["supported", "not supported", "not enough data"]
State = Literal["holds", "undecided", "contradicted", "no data"]
Unit = Literal["points", "factor"]


@dataclass(frozen=True)
class Finding:
    """Result of testing one of a claim's statements.

    Args:
        label: Label among the claim's statements.
        dataset: Its dataset, if the claim is about several.
        state: `holds`: significant; `contradicted`: the confidence interval lies on the other
            side; else `undecided`.
        estimate: The effect.
        p: Of its test.
        p_corrected: P-value that decides on the state: the same where every statement has to
            hold, else corrected by Holm's method.
        missing: Its groups of too few seeds; with any it is `no data`.
        empty: None of its groups has a single value.
    """

    label: str
    dataset: str | None
    state: State = "no data"
    estimate: Estimate | None = None
    p: float | None = None
    p_corrected: float | None = None
    missing: tuple[Group, ...] = ()
    empty: bool = False


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim, and the findings behind it.

    Args:
        claim: The claim.
        verdict: `not supported` does not mean refuted; `findings` say which part is.
        estimate: The mean effect over the statements with data; of the test `differ` the largest.
        p: Of the test that decided: the largest of all statements, of an average its own.
        unit: Of effects: points of accuracy, or a factor, of which they are the logarithm.
        findings: Per statement.
        absent: Datasets without any record, about which the verdict says nothing.
        seeds: Fewest and most values of a group.
    """

    claim: Claim
    verdict: Verdict
    estimate: Estimate | None
    p: float | None
    unit: Unit
    findings: tuple[Finding, ...]
    absent: tuple[str, ...]
    seeds: tuple[int, int] | None

    @property
    def weakest(self) -> Finding | None:
        """The statement with the largest p-value, which decides a claim about all."""
        tested = [finding for finding in self.findings if finding.p is not None]
        return max(tested, key=lambda f: f.p or 0.0) if tested else None
