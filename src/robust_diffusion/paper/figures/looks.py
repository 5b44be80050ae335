"""Name, colour and marker of each model and test graph, the same in every figure."""

from dataclasses import dataclass
from typing import Any
from zlib import crc32

COLOURS: tuple[str, ...] = ("#cc6677", "#332288", "#b8860b", "#117733", "#4477aa")
COLOURS += ("#882255", "#44aa99", "#999933", "#aa4499")
"""Paul Tol's muted scheme, its pale colours darkened; none is grey as edges are."""

BLACK, GREY = "#1b1b1b", "#777777"
MARKERS = "os^vD<>pXPh*d"


@dataclass(frozen=True)
class Look:
    """Name, marker and colour of a series."""

    label: str
    marker: str
    colour: str

    @property
    def style(self) -> dict[str, Any]:
        """Arguments of Matplotlib for its lines and marks."""
        return {"label": self.label, "marker": self.marker, "color": self.colour}


LOOKS = {
    "beltrami": Look("Beltrami", "o", "#cc6677"),
    "beltrami_no_lipschitz": Look("Beltrami without Lipschitz", "P", "#cc6677"),
    "mean_curvature": Look("Mean curvature", "^", "#117733"),
    "heat": Look("Heat", "h", "#aa4499"),
    "heat_plus": Look("Heat⁺", "*", "#aa4499"),
    "grand": Look("GRAND", "v", "#44aa99"),
    "grand_matched": Look("GRAND, slowed", "d", "#44aa99"),
    "grand_pp": Look("GRAND++", "P", "#44aa99"),
    "blend": Look("BLEND", "X", "#44aa99"),
    "p_laplacian": Look("p-Laplacian", "s", "#4477aa"),
    "p_laplacian_p3": Look("p-Laplacian, p = 3", "<", "#4477aa"),
    "p_laplacian_p4": Look("p-Laplacian, p = 4", "D", "#4477aa"),
    "uniform_modulation": Look("Uniform B", "D", "#999933"),
    "learned": Look("Learned", "o", "#999933"),
    "acmp": Look("ACMP", "o", "#332288"),
    "frond": Look("FROND", "s", "#332288"),
    "graphcon": Look("GraphCON", "^", "#332288"),
    "gread": Look("GREAD", "v", "#332288"),
    "hang": Look("HANG", "D", "#b8860b"),
    "hang_quad": Look("HANG-quad", "o", "#b8860b"),
    "beltrami_guard": Look("BeltramiGuard", "s", "#882255"),
    "gnn_guard": Look("GNNGuard", ">", "#332288"),
    "robust_gcn": Look("RobustGCN", "p", "#882255"),
    "rung": Look("RUNG", "P", "#882255"),
    "elastic_gnn": Look("ElasticGNN", "h", "#882255"),
    "gcn_jaccard": Look("GCN-Jaccard", "D", "#882255"),
    "soft_median": Look("Soft Median GDC", "*", "#882255"),
    "gcn": Look("GCN", "p", GREY),
    "gcn_svd": Look("GCN-SVD", "X", "#aa4499"),
    "gat": Look("GAT", "d", "#4477aa"),
    "graph_sage": Look("GraphSAGE", "<", "#117733"),
    "gin": Look("GIN", "v", "#999933"),
    "appnp": Look("APPNP", "*", "#b8860b"),
    "gpr_gnn": Look("GPRGNN", "P", "#b8860b"),
    "mlp": Look("MLP", "x", BLACK),
    "clean": Look("clean", "o", "#4477aa"),
    "speit": Look("SPEIT", "^", "#ee7733"),
    "tdgia": Look("TDGIA", "v", "#b2182b"),
    "pgd_modification": Look("PGD", "s", "#882255"),
    "published": Look("published in the paper", "|", BLACK),
}
"""Models by the option that names them, or their flow, and test graphs by the attack."""


_BY_LABEL = {look.label: look for look in LOOKS.values()}


def look_of(name: str, place: int | None = None) -> Look:
    """Look of a model; one that is not known goes by its own name, and looks alike each time.

    Args:
        name: Of its option, or its label.
        place: Of what is no model, among what is drawn beside it.

    Examples:
        >>> from robust_diffusion.paper.figures.looks import look_of
        >>> look_of("mean_curvature").label
        'Mean curvature'
    """
    if look := LOOKS.get(name, _BY_LABEL.get(name)):
        return look
    number = crc32(name.encode()) if place is None else place
    return Look(name, MARKERS[number % len(MARKERS)], COLOURS[number % len(COLOURS)])
