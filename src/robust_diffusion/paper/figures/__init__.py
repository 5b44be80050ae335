"""The paper's figures, drawn from trained models."""

from pathlib import Path

FIGURES = Path("outputs/figures")
"""Default folder of figures."""
