import numpy as np
import pytest

from robust_diffusion.data.split import degree_split, split_hash
from robust_diffusion.errors import DataError

TESTS = ("test_easy", "test_medium", "test_hard")


@pytest.mark.parametrize("n", [20, 100, 999, 2680])
def test_every_node_is_in_one_part_and_degrees_grow_with_the_difficulty(n: int) -> None:
    degree = np.random.default_rng(n).geometric(0.25, n)
    splits = degree_split(degree)
    assert [splits[name].size for name in TESTS] == [n // 10] * 3
    assert splits["train"].size == int(0.6 * n)
    assert splits["val"].size > 0
    parts = np.concatenate([splits["train"], splits["val"], splits["test"]])
    assert sorted(parts) == list(range(n))
    assert sorted(np.concatenate([splits[name] for name in TESTS])) == splits["test"].tolist()
    for index in splits.values():
        assert index.dtype == np.int64
        assert (np.diff(index) > 0).all()
    easy, medium, hard = (degree[splits[name]] for name in TESTS)
    assert easy.max() <= medium.min()
    assert medium.max() <= hard.min()
    assert easy.max() < hard.min()


def test_lowest_and_highest_degrees_are_never_tested() -> None:
    degree = np.random.default_rng(0).permutation(200)
    drawn = {of for seed in range(50) for of in degree[degree_split(degree, seed)["test"]]}
    assert drawn == set(range(10, 190))


def test_ties_are_cut_in_node_order() -> None:
    n = 1000
    degree = np.random.default_rng(0).integers(0, 4, n)
    rank = np.lexsort((np.arange(n), degree)).argsort()
    splits = degree_split(degree)
    for name, low, high in zip(TESTS, (50, 350, 650), (350, 650, 950), strict=True):
        assert low <= rank[splits[name]].min()
        assert rank[splits[name]].max() < high


@pytest.mark.parametrize("n", [0, 19])
def test_too_few_nodes_are_refused(n: int) -> None:
    with pytest.raises(DataError, match=r"^a\.npz: "):
        degree_split(np.ones(n, dtype=np.int64), where="a.npz")


FIXED = np.array([5, 1, 1, 2, 8, 3, 3, 3, 1, 0, 2, 2, 9, 4, 4, 1, 1, 6, 2, 7, 2, 2, 3, 1, 5])


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64])
@pytest.mark.parametrize(("seed", "expected"), [(0, "8885b61be2810fe4"), (1, "56563d3e8e607247")])
def test_the_split_is_the_same_on_every_platform(dtype: type, seed: int, expected: str) -> None:
    assert split_hash(degree_split(FIXED.astype(dtype), seed)) == expected


def test_the_hash_is_of_names_and_nodes_alone() -> None:
    parts = {"train": np.array([0, 2]), "val": np.array([1])}
    assert split_hash(parts) == split_hash(dict(reversed(parts.items())))
    others = [
        {"train": np.array([0, 3]), "val": np.array([1])},
        {"train": np.array([0]), "val": np.array([1, 2])},
        {"train": np.array([0, 2]), "test": np.array([1])},
        {"train": np.array([0, 2])},
    ]
    assert split_hash(parts) not in {split_hash(other) for other in others}
