"""Graphs: where they come from, how they are checked, normalised, split and served."""

from robust_diffusion.data.datamodule import GraphDataModule
from robust_diffusion.data.grb import load_grb
from robust_diffusion.data.synthetic import citation_like_graph

__all__ = ["GraphDataModule", "citation_like_graph", "load_grb"]
