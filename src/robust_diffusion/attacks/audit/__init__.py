"""The auditor: whether a perturbed graph is within its budget, from the two graphs alone."""

from robust_diffusion.attacks.audit.check import audit
from robust_diffusion.attacks.audit.files import (
    ReadGraph,
    perturbed_files,
    read_perturbed,
    write_perturbed,
)
from robust_diffusion.attacks.audit.violation import GraphLike, Kind, Violation

__all__ = [
    "GraphLike",
    "Kind",
    "ReadGraph",
    "Violation",
    "audit",
    "perturbed_files",
    "read_perturbed",
    "write_perturbed",
]
