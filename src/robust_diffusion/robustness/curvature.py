"""Effect of a trained network's curvature term: the distance of its B from uniform."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from robust_diffusion.flows import UniformModulation
from robust_diffusion.flows.base import ModulatedFlow
from robust_diffusion.models.checked import copy_of

QUANTILES = (0.5, 0.9, 0.99, 1.0)


def curvature_of(model: nn.Module, data: Data) -> dict[str, Any]:
    """|B deg - 1| of the edges in each layer, and the predictions that change without it.

    Returns:
        Nothing for a model without a curvature term. Else `layers`, per layer the quantiles of
        `ModulatedFlow.curvature` at the initial state by name, and `same_predictions`, the share of
        predictions, in 0..1, that B = 1 / deg at the same weights leaves as they are.
    """
    assert data.x is not None
    assert data.edge_index is not None
    with torch.no_grad(), _quantiles(model) as layers:
        own = model(data.x, data.edge_index).argmax(1)
    if not layers:
        return {}
    with torch.no_grad():
        uniform = with_uniform_modulation(model)(data.x, data.edge_index).argmax(1)
    same = (own == uniform)[data.mask].double().mean()
    return {"layers": layers, "same_predictions": float(same)}


def with_uniform_modulation(model: nn.Module) -> nn.Module:
    """A copy of a model at the same weights whose curvature flows have B = 1 / deg."""
    model = copy_of(model)
    for module in model.modules():
        if isinstance(module, ModulatedFlow):
            # It has no state of its own, so that the weights stay where they are.
            module.__class__ = UniformModulation
    return model


@contextmanager
def _quantiles(model: nn.Module) -> Iterator[dict[str, dict[str, float]]]:
    """Filled, in a `with` block, by the first state that reaches each curvature flow."""
    found: dict[str, dict[str, float]] = {}
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, ModulatedFlow) and not isinstance(module, UniformModulation):

            def measure(
                flow: ModulatedFlow, given: tuple[Any, ...], named: dict[str, Any], at: str = name
            ) -> None:
                if at not in found:
                    found[at] = {}  # the flow may be called once more by its own curvature
                    z, graph = given[1], named.get("graph", given[-1])
                    found[at] = _at_quantiles(flow.curvature(z, graph))

            handles.append(module.register_forward_pre_hook(measure, with_kwargs=True))
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _at_quantiles(values: torch.Tensor) -> dict[str, float]:
    # Not torch.quantile, which takes no more than 16 million edges.
    ordered = values.double().sort().values
    last = ordered.numel() - 1
    return {f"{q:.0%}": float(ordered[round(q * last)]) for q in QUANTILES if last >= 0}
