"""Random draws of code that asks no generator."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generators, of all devices, and restore them afterwards.

    Args:
        seed: Of every draw within.
    """
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
