"""Sources of graphs: one function per file layout, which returns a checked `Data`, features raw."""

from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from robust_diffusion.data.sources.benchmarks import load_defense_test as load_defense_test
    from robust_diffusion.data.sources.benchmarks import load_grb_words as load_grb_words
    from robust_diffusion.data.sources.benchmarks import load_heterophilous as load_heterophilous
    from robust_diffusion.data.sources.benchmarks import load_planetoid as load_planetoid
    from robust_diffusion.data.sources.benchmarks import load_prognn as load_prognn
    from robust_diffusion.data.sources.benchmarks import load_shchur as load_shchur
    from robust_diffusion.data.sources.custom import load_custom as load_custom
    from robust_diffusion.data.sources.custom import load_grb as load_grb
    from robust_diffusion.data.sources.synthetic import citation_like_graph as citation_like_graph

if not TYPE_CHECKING:  # type checkers would otherwise accept any name as an attribute
    __getattr__ = lazy_attributes(__name__)
