import torch
from torch import Tensor

from robust_diffusion.integrators.recompute import recompute_contexts, remembered


def values(*numbers: float) -> list[Tensor]:
    return [torch.tensor(number) for number in numbers]


def test_what_is_read_anew_was_read_first() -> None:
    first, second, later, latest = values(1.0, 2.0, 3.0, 4.0)
    forward, anew = recompute_contexts()
    with forward:
        assert remembered(first) is first
        assert remembered(second) is second
    for _ in range(2):
        with anew:
            assert remembered(later) is first
            assert remembered(latest) is second
    assert remembered(later) is later


def test_two_stretches_keep_their_own() -> None:
    first, second, later = values(1.0, 2.0, 3.0)
    (one, one_anew), (two, two_anew) = recompute_contexts(), recompute_contexts()
    with one:
        remembered(first)
    with two:
        remembered(second)
    with two_anew:
        assert remembered(later) is second
    with one_anew:
        assert remembered(later) is first
