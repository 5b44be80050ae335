"""Audit of a perturbed graph against its budget, using only the clean and the perturbed graph."""

from robust_diffusion.attacks.audit.check import GraphLike, Violation, ViolationKind, audit
from robust_diffusion.attacks.audit.files import (
    ReadGraph,
    perturbed_files,
    read_perturbed,
)

__all__ = [
    "GraphLike",
    "ReadGraph",
    "Violation",
    "ViolationKind",
    "audit",
    "perturbed_files",
    "read_perturbed",
]
