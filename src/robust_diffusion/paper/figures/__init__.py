"""The paper's figures, drawn from trained models."""

from pathlib import Path

FIGURES = Path("outputs/figures")
"""Folder that figures are drawn into, unless another is named."""
