"""Certificates: predictions that no attack within a budget can change."""

from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from robust_diffusion.certificates.base import ClassBounds as ClassBounds
    from robust_diffusion.certificates.base import Smoothing as Smoothing
    from robust_diffusion.certificates.bi_smoothing import BiSmoothing as BiSmoothing
    from robust_diffusion.certificates.certify_model import certify as certify
    from robust_diffusion.certificates.report import CertificateReport as CertificateReport
    from robust_diffusion.certificates.sampling import NoisyModel as NoisyModel
    from robust_diffusion.certificates.sampling import SmoothedModel as SmoothedModel
    from robust_diffusion.certificates.sparse import SparseSmoothing as SparseSmoothing

if not TYPE_CHECKING:  # type checkers would otherwise accept any name as an attribute
    __getattr__ = lazy_attributes(__name__)
