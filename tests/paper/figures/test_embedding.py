import numpy as np
import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.figures.embedding import tsne


def clusters(num_nodes: int = 90) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    label = np.arange(num_nodes) % 3
    centre = 20 * np.eye(3, 8)
    return centre[label] + generator.normal(size=(num_nodes, 8)), label


def test_layouts_are_deterministic() -> None:
    z, _ = clusters()
    assert np.array_equal(tsne(z, seed=3), tsne(z, seed=3))


def test_what_is_apart_stays_apart() -> None:
    z, label = clusters()
    position = tsne(z, seed=0)
    nearest = np.linalg.norm(position[:, None] - position[None], axis=2)
    np.fill_diagonal(nearest, np.inf)
    assert (label[nearest.argmin(1)] == label).mean() > 0.98


@pytest.mark.parametrize("num_nodes", [1, 3, 5, 40])
def test_positions_fill_the_frame(num_nodes: int) -> None:
    position = tsne(clusters(num_nodes)[0], seed=0)
    assert position.shape == (num_nodes, 2)
    assert np.isfinite(position).all()
    assert np.abs(position).max() <= 1 + 1e-9


def test_equal_nodes_are_laid_out_all_the_same() -> None:
    position = tsne(np.ones((12, 4)), seed=0)
    assert len(np.unique(position.round(6), axis=0)) == 12


def test_one_channel_is_enough() -> None:
    assert tsne(np.linspace(0, 1, 20)[:, None], seed=0).shape == (20, 2)


def test_a_perplexity_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="--perplexity=0"):
        tsne(clusters()[0], seed=0, perplexity=0)
