"""Small models in float64, and the frame that their dense formulas share."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from robust_diffusion.models import GCN
from tests import oracles
from tests.graphs import CHANNELS, NODES, random_edges

CLASSES = 3
HIDDEN = 6


def build_model(cls: Callable[..., nn.Module], **options: object) -> nn.Module:
    """A small model in eval mode, all of it drawn, so that no parameter is neutral."""
    torch.manual_seed(0)
    arguments = {"hidden_channels": HIDDEN, **options}
    model = cls(in_channels=CHANNELS, out_channels=CLASSES, **arguments).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
        for name, moments in model.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                moments += torch.rand_like(moments)
    return model


def gcn(in_channels: int, out_channels: int) -> nn.Module:
    return GCN(in_channels, 8, out_channels=out_channels)


def edges(*, weighted: bool = False, seed: int = 0) -> tuple[Tensor, Tensor | None]:
    edge_index, weight = random_edges(seed, symmetric=True)
    return edge_index, weight if weighted else None


def dense_of(edge_index: Tensor, weight: Tensor | None, *, self_loops: bool = True) -> Tensor:
    if weight is None:
        weight = torch.ones(edge_index.size(1), dtype=torch.float64)
    return oracles.adjacency(edge_index, weight, NODES, self_loops=self_loops)


def dense_stack(
    model: nn.Module,
    x: Tensor,
    apply: Callable[[nn.Module, Tensor], Tensor],
    activation: Callable[[Tensor], Tensor] = torch.relu,
) -> Tensor:
    """Normalise, apply, activate; nothing after the last layer."""
    last = len(model.layers) - 1
    for i, (norm, layer) in enumerate(zip(model.norms, model.layers, strict=True)):
        x = apply(layer, oracles.layer_norm(x, norm))
        x = activation(x) if i < last else x
    return x
