"""The auditor: whether a perturbed graph is within its budget, from the two graphs alone."""

from robust_diffusion.attacks.audit.check import audit
from robust_diffusion.attacks.audit.files import (
    ReadGraph,
    perturbed_files,
    read_perturbed,
    write_perturbed,
)
from robust_diffusion.attacks.audit.violation import GraphLike, Violation, ViolationKind

__all__ = [
    "GraphLike",
    "ReadGraph",
    "Violation",
    "ViolationKind",
    "audit",
    "perturbed_files",
    "read_perturbed",
    "write_perturbed",
]
