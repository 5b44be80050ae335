"""The paper's claims in words, as tests over records."""

from robust_diffusion.paper.claims.claim import CLAIMS, Claim, Claims, load_claims
from robust_diffusion.paper.claims.evidence import PublishedEvidence, RecordedEvidence
from robust_diffusion.paper.claims.judge import judge
from robust_diffusion.paper.claims.judgement import Judgement

__all__ = [
    "CLAIMS",
    "Claim",
    "Claims",
    "Judgement",
    "PublishedEvidence",
    "RecordedEvidence",
    "judge",
    "load_claims",
]
