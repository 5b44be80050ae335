"""Sources of graphs: one function per file layout, each returning a checked `Data`."""

from robust_diffusion.data.sources.custom import load_custom
from robust_diffusion.data.sources.grb import load_grb, write_grb
from robust_diffusion.data.sources.planetoid import load_planetoid
from robust_diffusion.data.sources.shchur import load_shchur
from robust_diffusion.data.sources.synthetic import citation_like_graph

__all__ = [
    "citation_like_graph",
    "load_custom",
    "load_grb",
    "load_planetoid",
    "load_shchur",
    "write_grb",
]
