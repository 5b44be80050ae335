"""What the paper says in words, as tests over records."""

from robust_diffusion.paper.claims.claim import CLAIMS, Claim, Claims, load_claims
from robust_diffusion.paper.claims.evidence import PrintedEvidence, RecordedEvidence
from robust_diffusion.paper.claims.judge import judge
from robust_diffusion.paper.claims.judgement import Judgement

__all__ = [
    "CLAIMS",
    "Claim",
    "Claims",
    "Judgement",
    "PrintedEvidence",
    "RecordedEvidence",
    "judge",
    "load_claims",
]
