import numpy as np
import pytest

from robust_diffusion.data.split import degree_split, split_hash
from robust_diffusion.errors import DataError

TESTS = ("test_easy", "test_medium", "test_hard")
SIZES = (20, 100, 999, 2680)


def degrees(n: int) -> np.ndarray:
    return np.random.default_rng(n).geometric(0.25, n)


@pytest.mark.parametrize("n", SIZES)
def test_every_node_is_in_exactly_one_part(n: int) -> None:
    splits = degree_split(degrees(n))
    assert [splits[name].size for name in TESTS] == [n // 10] * 3
    assert splits["train"].size == int(0.6 * n)
    assert splits["val"].size > 0
    parts = np.concatenate([splits["train"], splits["val"], splits["test"]])
    assert sorted(parts) == list(range(n))
    assert sorted(np.concatenate([splits[name] for name in TESTS])) == splits["test"].tolist()
    for index in splits.values():
        assert index.dtype == np.int64
        assert (np.diff(index) > 0).all()


@pytest.mark.parametrize("n", SIZES)
def test_degrees_grow_with_the_difficulty(n: int) -> None:
    degree = degrees(n)
    easy, medium, hard = (degree[degree_split(degree)[name]] for name in TESTS)
    assert easy.max() <= medium.min()
    assert medium.max() <= hard.min()
    assert easy.max() < hard.min()


def test_lowest_and_highest_degrees_are_never_tested() -> None:
    n = 200
    degree = np.random.default_rng(0).permutation(n)
    drawn = set()
    for seed in range(50):
        drawn |= set(degree[degree_split(degree, seed)["test"]])
    assert drawn == set(range(10, 190))


def test_ties_are_cut_in_node_order() -> None:
    n = 1000
    degree = np.random.default_rng(0).integers(0, 4, n)
    rank = np.lexsort((np.arange(n), degree)).argsort()
    splits = degree_split(degree)
    for name, low, high in zip(TESTS, (50, 350, 650), (350, 650, 950), strict=True):
        assert low <= rank[splits[name]].min()
        assert rank[splits[name]].max() < high


def test_the_seed_decides() -> None:
    degree = degrees(100)
    first, again, other = (degree_split(degree, seed) for seed in (1, 1, 2))
    for name in first:
        assert np.array_equal(first[name], again[name])
        assert not np.array_equal(first[name], other[name])


@pytest.mark.parametrize("n", [0, 1, 19])
def test_too_few_nodes_are_refused(n: int) -> None:
    with pytest.raises(DataError, match=rf"a\.npz: has {n} nodes, too few .* at least 20"):
        degree_split(np.ones(n, dtype=np.int64), where="a.npz")


FIXED = np.array([5, 1, 1, 2, 8, 3, 3, 3, 1, 0, 2, 2, 9, 4, 4, 1, 1, 6, 2, 7, 2, 2, 3, 1, 5])


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64])
@pytest.mark.parametrize(("seed", "expected"), [(0, "8885b61be2810fe4"), (1, "56563d3e8e607247")])
def test_the_split_is_the_same_on_every_platform(dtype: type, seed: int, expected: str) -> None:
    assert split_hash(degree_split(FIXED.astype(dtype), seed)) == expected


def test_the_hash_is_of_names_and_nodes_alone() -> None:
    parts = {"train": np.array([0, 2]), "val": np.array([1])}
    same = dict(reversed(parts.items()))
    assert split_hash(parts) == split_hash(same)
    assert len(split_hash(parts)) == 16
    others = [
        {"train": np.array([0, 3]), "val": np.array([1])},
        {"train": np.array([0]), "val": np.array([1, 2])},
        {"train": np.array([0, 2]), "test": np.array([1])},
        {"train": np.array([0, 2])},
    ]
    assert split_hash(parts) not in {split_hash(other) for other in others}
