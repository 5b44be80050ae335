"""What the paper says in words, as tests over records."""

from robust_diffusion.report.claims.claim import CLAIMS, Claim, Claims, load_claims
from robust_diffusion.report.claims.evidence import PrintedEvidence, RecordedEvidence
from robust_diffusion.report.claims.judge import judge
from robust_diffusion.report.claims.judgement import Judgement

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
