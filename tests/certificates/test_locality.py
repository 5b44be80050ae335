from collections.abc import Callable
from functools import cache, partial
from itertools import cycle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion import certify
from robust_diffusion.certificates import BiSmoothing, SparseSmoothing
from robust_diffusion.certificates.locality import check_locality, measure_locality
from robust_diffusion.certificates.sampling import graphs_per_pass
from robust_diffusion.data.sources import citation_like_graph
from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import Beltrami, Hang
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GCN, GraphPDE, RobustGCN
from tests.backends import BACKENDS, backend
from tests.graphs import CHANNELS
from tests.models.test_contract import Case, build, cases, edge_index, option, x

__all__ = ["edge_index", "x"]

INJECTION = BiSmoothing(p_e=0.3, p_n=0.3, samples=9, selection_samples=9, max_nodes=1, edges=(1,))
FLIPS = SparseSmoothing(p_plus=1e-6)
WIDTH = 32
Term = Callable[[nn.Module, Tensor, Tensor], Tensor]


@cache
def graph(num_nodes: int = 300) -> Data:
    return citation_like_graph(num_nodes, num_nodes * 7 // 3, WIDTH)


class WithTerm(nn.Module):
    """A GCN beside another term."""

    def __init__(self, term: Term) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gcn, self.lin = GCN(WIDTH, 16, out_channels=7, num_layers=2), nn.Linear(WIDTH, 7)
        self.term = term

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.gcn(x, edge_index) + self.term(self.lin, x, edge_index)


def exhausted(lin: nn.Module, x: Tensor, _: Tensor) -> Tensor:
    if x.isnan().any():
        raise MemoryError
    return lin(x)


def test_out_of_memory_is_not_taken_for_a_refusal_of_nan() -> None:
    with pytest.raises(MemoryError):
        measure_locality(WithTerm(exhausted), graph().x, graph().edge_index)


def degrees(x: Tensor, edge_index: Tensor) -> Tensor:
    return torch.bincount(edge_index[0], minlength=x.size(0)).to(x.dtype)


def nearest(lin: nn.Module, x: Tensor, _: Tensor) -> Tensor:
    return lin(x)[torch.cdist(x, x).fill_diagonal_(torch.inf).argmin(1)]


def eigenvectors(lin: nn.Module, x: Tensor, edge_index: Tensor) -> Tensor:
    adjacency = x.new_zeros(len(x), len(x)).index_put(
        (edge_index[0], edge_index[1]), x.new_ones(())
    )
    return torch.linalg.eigh(adjacency.sum(1).diag() - adjacency).eigenvectors[:, :7]


GLOBAL: dict[str, Term] = {
    "mean": lambda lin, x, _: lin(x).mean(0),
    "mean without gradient": lambda lin, x, _: lin(x.detach()).mean(0).round(decimals=2),
    "maximum of normalised logits": lambda lin, x, _: F.normalize(lin(x)).amax(0),
    "median": lambda lin, x, _: lin(x).median(0).values,
    "nearest neighbour": nearest,
    "number of nodes": lambda lin, x, _: x.new_full((7,), 1e-6 * len(x)),
    "rank of degree": lambda lin, x, edges: (
        degrees(x, edges).argsort(stable=True)[:, None] / len(x)
    ),
    "eigenvectors": eigenvectors,
    "first node": lambda lin, x, _: lin(x[:1]),
}


def cosines(x: Tensor) -> Tensor:
    """Similarity to a direction that no node of the graph is close to."""
    direction = torch.cos(torch.arange(WIDTH)).to(x)
    return F.cosine_similarity(x, direction, dim=1)


def above(statistic: Callable[[Tensor], Tensor], threshold: float = 0.98) -> Term:
    """A term that is 0 unless a statistic of all nodes' similarities exceeds a threshold."""
    return lambda lin, x, _: lin(x) * 100 * (statistic(cosines(x)) - threshold).relu()


def times(factor: Callable[[Tensor], Any]) -> Term:
    """A term that multiplies another by a function of all nodes."""
    return lambda lin, x, _: lin(x) * factor(x)


def pooled(lin: nn.Module, x: Tensor, _: Tensor) -> Tensor:
    scores, nodes = cosines(x).topk(3)
    return (scores - 0.98).relu() @ lin(x[nodes])


DEAD_ZONES: dict[str, Term] = {
    "maximum": above(lambda cos: cos.max()),
    "sum of exponentials": above(lambda cos: (100 * cos).logsumexp(0), 98),
    "deviation": above(lambda cos: cos.std(), 1),
    "maximum without gradient": above(lambda cos: cos.detach().max()),
    "count": above(lambda cos: (cos > 0.98).sum(), 5),
    "branch": times(lambda x: -1 if cosines(x).max() > 0.98 else 1),
    "global attention": lambda lin, x, _: (cosines(x) - 0.98).relu() @ lin(x),
    "top-k pooling": pooled,
    "infinities alone": times(lambda x: 1 + (x.nan_to_num(0) - 1e9).relu().amax()),
    "parity of the number of nodes": times(lambda x: (-1) ** (len(x) % 2)),
    "number of nodes above a threshold": times(lambda x: 1 + (len(x) > 400)),
}
PASSES_ISOLATED: dict[str, Term] = {
    "mean of nodes with edges": lambda lin, x, edges: lin(x[degrees(x, edges) > 0]).mean(0),
    "maximum over ends of edges": lambda lin, x, e: F.pad(lin(x)[e[0]], (0, 0, 0, 1)).amax(0),
    "maximum over ends of edges above a threshold": lambda lin, x, e: (
        F.pad(cosines(x)[e[0]], (0, 1)).amax() - 0.98
    ).relu(),
    "largest degree": lambda lin, x, edges: 1e-3 * degrees(x, edges).max().expand(7),
    "graph without edges": lambda lin, x, edges: lin(x) * bool(edges.numel()),
}
LOCAL: dict[str, Term] = {
    "linear": lambda lin, x, _: lin(x),
    "single precision": lambda lin, x, _: F.linear(x, torch.ones(7, WIDTH)),
    "degree": lambda lin, x, edges: degrees(x, edges)[:, None],
}


def pde(flow: Any, **solver: Any) -> nn.Module:
    torch.manual_seed(0)
    return GraphPDE(
        WIDTH, 8, out_channels=7, flow=flow, num_layers=2, solver=Solver(**solver)
    ).eval()


def hang(t_end: float) -> nn.Module:
    flow = partial(Hang, scale="graph", t_end=t_end)
    return pde(flow, method="euler", num_steps=int(2 * t_end))


MODELS: dict[str, Callable[[], nn.Module]] = {
    **{name: partial(WithTerm, term) for name, term in GLOBAL.items()},
    **{f"dead zone: {name}": partial(WithTerm, term) for name, term in DEAD_ZONES.items()},
    "energy of the graph": partial(hang, 1.0),
    "steps by the norm of all nodes": partial(pde, Beltrami, method="dopri5"),
}


@pytest.mark.parametrize("name", MODELS)
def test_an_influence_of_isolated_nodes_is_refused_or_costs_one_graph_per_pass(name: str) -> None:
    model, given = MODELS[name](), (graph().x, graph().edge_index)
    with pytest.raises(ConfigError, match=r"^certificate=bi_smoothing: .* without edges"):
        certify(model, graph(), certificate=INJECTION, progress=False)
    assert graphs_per_pass(*given, FLIPS, check_locality(model.eval(), *given, FLIPS)) == 1


@pytest.mark.parametrize("name", ["mean", "maximum of normalised logits"])
def test_an_influence_is_seen_in_a_large_graph(name: str) -> None:
    large = graph(20_000)
    locality = measure_locality(MODELS[name]().eval(), large.x, large.edge_index)
    assert locality.isolated is locality.separate is False


@pytest.mark.parametrize("name", [*PASSES_ISOLATED, *LOCAL])
def test_local_terms_are_admitted_and_nodes_with_edges_may_have_an_influence(name: str) -> None:
    edges = graph().edge_index[:, ::9] if name in PASSES_ISOLATED else graph().edge_index
    model = WithTerm((PASSES_ISOLATED | LOCAL)[name]).eval()
    locality = measure_locality(model, graph().x, edges)
    assert locality.isolated
    assert locality.separate == (name in LOCAL)
    assert locality.dtype == ("float32" if name == "single precision" else "float64")


@pytest.mark.slow
@pytest.mark.parametrize(("case", "backend_name"), list(zip(cases(), cycle(BACKENDS))))
def test_local_models_of_the_package_are_admitted(
    case: Case, x: Tensor, edge_index: Tensor, backend_name: str
) -> None:
    """All but truncated eigenvectors and GRAND++, whose source has a mean over all nodes."""
    with backend(backend_name):
        locality = measure_locality(build(case).float(), x.float(), edge_index)
    is_global = option(case) == "gcn_svd" or "flow=grand_pp" in case
    assert locality.isolated == locality.separate == (not is_global)
    if not is_global:
        # Soft medians sort the features of all nodes to rank those of neighbours.
        assert locality.decided or option(case) == "soft_median"
        assert locality.gradient == (None if locality.decided else 0)
        assert locality.change is not None
        assert locality.change < 1e-14


def raises(lin: nn.Module, x: Tensor, _: Tensor) -> Tensor:
    if not x.isfinite().all():
        raise ValueError
    return lin(x)


LOSES: dict[str, Term] = {
    "error": raises,
    "NaN replaced": lambda lin, x, _: lin(x.nan_to_num()),
    "sum without NaN": lambda lin, x, _: lin(x) + x.nansum(1, keepdim=True),
    "number": lambda lin, x, _: lin(x) * (2 if float(x.detach().sum()) == 0.1 else 1),
    "array": lambda lin, x, _: lin(torch.from_numpy(x.detach().numpy().clip(-1, 1)).fmax(x * 0)),
}


@pytest.mark.parametrize("name", LOSES)
def test_random_features_are_tried_if_a_model_may_lose_nan(name: str) -> None:
    local, x, edges = LOSES[name], graph().x, graph().edge_index
    locality = measure_locality(WithTerm(local).eval(), x, edges)
    assert not locality.decided
    assert locality.gradient == 0
    assert locality.isolated
    assert "random" in str(locality)

    def with_mean(lin: nn.Module, x: Tensor, edges: Tensor) -> Tensor:
        return local(lin, x, edges) + lin(x.nan_to_num()).nan_to_num().mean(0)

    assert not measure_locality(WithTerm(with_mean).eval(), x, edges).isolated


ESCAPES: dict[str, Term] = {
    "NaN replaced": above(lambda cos: cos.nan_to_num().max()),
    "number": times(lambda x: 1 + (float(cosines(x.detach()).max()) > 0.98)),
    "array": times(lambda x: 1 + bool((cosines(x.detach()).numpy() > 0.98).any())),
}


@pytest.mark.parametrize("name", ESCAPES)
def test_a_threshold_escapes_only_where_nan_is_lost(name: str) -> None:
    locality = measure_locality(WithTerm(ESCAPES[name]).eval(), graph().x, graph().edge_index)
    assert locality.isolated
    assert locality.decided == (name == "array")


@pytest.mark.parametrize("is_global", [False, True])
def test_a_model_that_samples_is_judged_by_nan(is_global: bool) -> None:
    class Sampling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = RobustGCN(CHANNELS, 8, out_channels=7, sample_at_test=True)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.model(x, edge_index) + (x.mean() if is_global else 0)

    locality = measure_locality(
        Sampling().eval(), graph().x[:, :CHANNELS].clone(), graph().edge_index
    )
    assert locality.isolated != is_global
    assert not locality.separate
    assert locality.change == (torch.inf if is_global else None)
