"""Sources of graphs: a function per file layout, which returns a checked `Data`, features raw."""

from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from robust_diffusion.data.sources.custom import load_custom
    from robust_diffusion.data.sources.grb import load_grb, write_grb
    from robust_diffusion.data.sources.heterophilous import load_heterophilous
    from robust_diffusion.data.sources.planetoid import load_planetoid
    from robust_diffusion.data.sources.prognn import load_prognn
    from robust_diffusion.data.sources.shchur import load_shchur
    from robust_diffusion.data.sources.synthetic import citation_like_graph

__all__ = [
    "citation_like_graph",
    "load_custom",
    "load_grb",
    "load_heterophilous",
    "load_planetoid",
    "load_prognn",
    "load_shchur",
    "write_grb",
]

if not TYPE_CHECKING:  # where a checker would take any name for one of the package
    __getattr__ = lazy_attributes(__name__)
