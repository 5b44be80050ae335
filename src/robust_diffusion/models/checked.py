"""Checks of a model, whoever has written it."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from robust_diffusion.errors import ConfigError, RobustDiffusionError


@contextmanager
def frozen(model: object) -> Iterator[None]:
    """Put a module in eval mode, its parameters without gradient, and restore both afterwards."""
    if not isinstance(model, nn.Module):
        yield
        return
    modes = [(module, module.training) for module in model.modules()]
    gradients = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    model.eval()
    model.requires_grad_(requires_grad=False)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter, requires_grad in gradients:
            parameter.requires_grad_(requires_grad)


def device_of(model: object) -> torch.device:
    """The device of a module's first tensor; the CPU if it has none."""
    tensors = chain(model.parameters(), model.buffers()) if isinstance(model, nn.Module) else ()
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def check_model(
    model: object,
    x: Float[Tensor, "n f"],
    edge_index: Int[Tensor, "2 e"],
    num_classes: int,
    *,
    name: str = "model",
) -> Float[Tensor, "n c"]:
    """Try a model on a graph; it is left as it was.

    Args:
        model: Any object.
        x: Features, on the model's device.
        edge_index: Edges, likewise.
        num_classes: Classes that the labels tell.
        name: Of the argument, for messages.

    Returns:
        Its logits in eval mode.

    Raises:
        ConfigError: It is no module, remembers its first graph, does not take (x, edge_index), or
            returns something other than finite logits, one of each node and class.
    """
    if not isinstance(model, nn.Module):
        given = "class" if isinstance(model, type) else type(model).__name__
        raise ConfigError(f"{name}: is a {given}; give an nn.Module, built and trained")
    for part in model.modules():
        if getattr(part, "cached", False) is True:
            raise ConfigError(
                f"{name}: {type(part).__name__} remembers the first graph that it sees, and would "
                "not see any other; build it with cached=False"
            )
    try:
        with torch.no_grad(), frozen(model):
            logits = model(x, edge_index)
    except (RobustDiffusionError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # of anybody's forward
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"{name}: {type(model).__name__} does not take this graph of {x.size(1)} features per "
            f"node ({reason}); it must map (x, edge_index) to logits"
        ) from error
    if not isinstance(logits, Tensor):
        raise ConfigError(
            f"{name}: {type(model).__name__} returns a {type(logits).__name__}; it must return "
            "logits alone"
        )
    if logits.ndim != 2 or logits.size(0) != x.size(0) or not logits.is_floating_point():
        raise ConfigError(
            f"{name}: {type(model).__name__} returns shape {tuple(logits.shape)} of {logits.dtype} "
            f"for {x.size(0)} nodes; it must return one row of logits per node"
        )
    if logits.size(1) < num_classes:
        raise ConfigError(
            f"{name}: {type(model).__name__} tells {logits.size(1)} classes apart, and the labels "
            f"are 0..{num_classes - 1}"
        )
    if not torch.isfinite(logits).all():
        raise ConfigError(f"{name}: the logits of {type(model).__name__} are not finite")
    return logits
