import numpy as np
import torch

from robust_diffusion.certificates.noise import Noise, pair_numbers, pairs


def test_uniform_numbers_are_uniform_and_independent() -> None:
    noise = Noise(0, "votes")
    found = noise.uniform("edge", np.arange(300), np.arange(300))
    assert found.min() >= 0
    assert found.max() < 1
    np.testing.assert_allclose(np.histogram(found, 10)[0] / found.size, 0.1, atol=0.005)
    for other in (
        found[1:, :],
        Noise(1, "votes").uniform("edge", np.arange(300), np.arange(300)),
        Noise(0, "selection").uniform("edge", np.arange(300), np.arange(300)),
        noise.uniform("node", np.arange(300), np.arange(300)),
    ):
        shared = found[: len(other)]
        assert abs(np.corrcoef(shared.ravel(), other.ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(found[:, 0], found[:, 1])[0, 1]) < 0.2


def test_a_number_does_not_depend_on_the_others() -> None:
    noise = Noise(3, "votes")
    many = noise.uniform("edge", np.arange(5), np.arange(7))
    assert noise.uniform("edge", np.array([4]), np.array([6, 2])).tolist() == [
        [many[4, 6], many[4, 2]]
    ]


def test_pairs_are_numbered_one_after_another() -> None:
    numbers = np.arange(10)
    assert pairs(numbers).T.tolist() == [
        [0, 1], [0, 2], [1, 2], [0, 3], [1, 3], [2, 3], [0, 4], [1, 4], [2, 4], [3, 4]
    ]  # fmt: skip
    high = np.array([2, 10**4, 3 * 10**6, 2 * 10**8])
    ends = np.concatenate([high * (high - 1) // 2 - 1, high * (high - 1) // 2])
    for edges in (pairs(ends), pairs(ends)[::-1].copy()):
        assert pair_numbers(torch.from_numpy(edges)).tolist() == ends.tolist()


def test_each_pair_is_chosen_with_the_probability() -> None:
    noise = Noise(0, "votes")
    counts = np.zeros(45)
    for draw in range(2000):
        chosen = noise.chosen_pairs(0.2, draw, 10)
        assert (np.diff(chosen) > 0).all()
        counts[chosen] += 1
    np.testing.assert_allclose(counts / 2000, 0.2, atol=0.04)
    np.testing.assert_allclose(counts.mean() / 2000, 0.2, atol=0.005)


def test_the_pairs_of_the_first_nodes_are_the_same_in_a_larger_graph() -> None:
    noise = Noise(0, "votes")
    for draw in range(20):
        few, many = noise.chosen_pairs(0.1, draw, 20), noise.chosen_pairs(0.1, draw, 60)
        assert few.tolist() == many[many < 190].tolist()
    assert noise.chosen_pairs(0.0, 0, 20).size == 0
    assert noise.chosen_pairs(0.5, 0, 1).size == 0
