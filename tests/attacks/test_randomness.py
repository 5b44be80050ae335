import torch

from robust_diffusion.attacks import seeded
from tests.attacks.contract import random_states


def test_seeded_draws_are_the_seeds_and_the_state_is_restored() -> None:
    def draw(seed: int) -> list[float]:
        with seeded(seed):
            return torch.rand(3).tolist()

    before = random_states()
    assert draw(0) == draw(0) != draw(1)
    assert random_states() == before
