"""Random draws of code that asks no generator, and the state that all draws depend on."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from robust_diffusion.models.checked import seeded as seeded


@contextmanager
def single_precision(like: Tensor) -> Iterator[None]:
    """Draws that name no type are of float32, as a tensor is; of another they are the caller's."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32 if like.dtype == torch.float32 else before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def random_state(generator: torch.Generator, device: torch.device) -> dict[str, Tensor]:
    """The states of a generator and of torch's global ones, of the CPU and of one device."""
    state = {"state.own": generator.get_state(), "state.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["state.cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(
    state: Mapping[str, Tensor], generator: torch.Generator, device: torch.device
) -> None:
    """Set what `random_state` gave, among other tensors; the device's, if it was on one as well."""
    generator.set_state(state["state.own"])
    torch.set_rng_state(state["state.cpu"])
    if device.type == "cuda" and "state.cuda" in state:
        torch.cuda.set_rng_state(state["state.cuda"], device)
