"""Robustness of graph neural diffusion to topology perturbations (arXiv:2209.07754)."""

__version__ = "0.1.0"
