import copy
from collections.abc import Callable
from functools import partial
from itertools import cycle, pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import InjectionAdversary
from robust_diffusion.attacks.audit import audit
from robust_diffusion.attacks.injection.adversary import InjectionAttacker
from robust_diffusion.attacks.losses import margins
from robust_diffusion.errors import TrainingError
from robust_diffusion.integrators.solver import Solver
from robust_diffusion.models import GCN, GNNGuard, GraphPDE
from tests.attacks.graphs import small_graph, trained_gcn
from tests.backends import BACKENDS, backend


def view() -> Data:
    """A graph of which the first 100 nodes are scored."""
    graph = small_graph()
    mask = torch.arange(200) < 100
    return Data(x=graph.x, y=graph.y, edge_index=graph.edge_index, mask=mask)


def attacker(model: nn.Module, **options: Any) -> InjectionAttacker:
    torch.manual_seed(0)
    return InjectionAdversary(**options).against(model)


def harm(model: nn.Module, data: Data) -> float:
    """Mean margin of the scored nodes, by which they are lost."""
    with torch.no_grad():
        logits = copy.deepcopy(model).eval()(data.x, data.edge_index)
    return margins(logits[data.mask], data.y[data.mask]).mean().item()


@pytest.mark.parametrize(("ratio", "edges"), [(0.1, 1), (0.3, 2), (0.001, 1)])
@pytest.mark.parametrize("limits", [None, (-0.2, 0.3)])
def test_nodes_are_injected_at_scored_nodes_alone(
    ratio: float, edges: int, limits: tuple[float, float] | None
) -> None:
    clean, model = view(), trained_gcn(small_graph())
    before = copy.deepcopy(clean)
    options = {"node_ratio": ratio, "edges_per_target": edges, "feature_limits": limits}
    options["edges"] = "equal"
    attacked = attacker(model, **options)(clean)
    injected, scored = max(1, round(100 * ratio)), clean.mask.nonzero()[:, 0]
    assert attacked.num_nodes == 200 + injected
    allowed = {"max_injected_nodes": injected, "max_injected_edges": 100 * edges}
    allowed |= {"feature_limits": limits, "target_nodes": scored}
    assert not audit(clean, attacked, kind="injection", **allowed)
    added = attacked.edge_index[:, clean.edge_index.size(1) :]
    assert torch.equal(torch.bincount(added[0], minlength=200)[:100], torch.full((100,), edges))
    assert torch.equal(attacked.mask.nonzero()[:, 0], scored)
    for key in ("x", "y", "edge_index", "mask"):
        assert torch.equal(clean[key], before[key])


MODELS: dict[str, Callable[..., nn.Module]] = {
    "gcn": GCN,
    "gnn_guard": GNNGuard,
    **{
        flow: partial(GraphPDE, flow=flow, solver=Solver("rk4", num_steps=1))
        for flow in ("grand", "beltrami", "learned")
    },
}


@pytest.mark.parametrize(("kind", "name"), list(zip(MODELS, cycle(BACKENDS))))
def test_steps_raise_the_loss_of_every_model(kind: str, name: str) -> None:
    torch.manual_seed(0)
    model, clean = MODELS[kind](16, 8, out_channels=7).train(), view()
    with backend(name):
        attack = attacker(model, num_steps=5, step_size=0.01, loss="logit")
        first, later = attack(clean), [attack(clean) for _ in range(4)][-1]
        assert torch.equal(first.edge_index, later.edge_index)
        assert harm(model, later) > harm(model, first) + 1e-4


def test_a_model_is_left_as_it_was() -> None:
    model = trained_gcn(small_graph()).train()
    before = copy.deepcopy(model.state_dict())
    attacker(model)(view())
    assert model.training
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_injection_adversary_redraws_edges() -> None:
    model, clean = trained_gcn(small_graph()).train(), view()
    attack = attacker(model, epochs_per_draw=2)
    edges = [attack(clean).edge_index for _ in range(5)]
    assert [torch.equal(a, b) for a, b in pairwise(edges)] == [True, False, True, False]


def test_injection_adversary_views() -> None:
    model, clean = trained_gcn(small_graph()), view()
    attack = attacker(model, loss="logit", num_steps=1)
    first = attack(clean)
    assert harm(model, attack(copy.deepcopy(clean))) > harm(model, first)
    other = view()
    other.edge_index = other.edge_index[:, :-2]
    assert attack(other).edge_index.size(1) == first.edge_index.size(1) - 2


class Blind(GCN):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x.detach(), edge_index)


def test_a_model_without_a_gradient_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"Blind.*adversary=none"):
        attacker(Blind(16, 8, out_channels=7))(view())
