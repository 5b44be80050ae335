"""The paper's claims in words, as tests over records."""

from robust_diffusion.paper.claims.claim import CLAIMS, Claim, Claims, load_claims
from robust_diffusion.paper.claims.columns import Row, side_by_side, variants_of
from robust_diffusion.paper.claims.evidence import Evidence, published_evidence, recorded_evidence
from robust_diffusion.paper.claims.judge import judge
from robust_diffusion.paper.claims.judgement import Judgement

__all__ = [
    "CLAIMS",
    "Claim",
    "Claims",
    "Evidence",
    "Judgement",
    "Row",
    "judge",
    "load_claims",
    "published_evidence",
    "recorded_evidence",
    "side_by_side",
    "variants_of",
]
