from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.certificates import BiSmoothing, NoisyModel, SmoothedModel, SparseSmoothing
from robust_diffusion.certificates.base import Noise, pair_numbers, pairs
from robust_diffusion.certificates.locality import check_locality
from robust_diffusion.certificates.sampling import VoteCounter, graphs_per_pass, noisy_logits
from robust_diffusion.models import GCN
from robust_diffusion.records.store import ArtifactStore
from tests.attacks.contract import graph, trained

SCHEMES = [SparseSmoothing(p_plus=0.01), BiSmoothing(p_e=0.3, p_n=0.3)]
each_scheme = pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)


@each_scheme
def test_nodes_keep_an_edge_as_often_as_the_scheme_says(scheme: Any) -> None:
    star = torch.tensor([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]])  # no room for joined pairs
    scheme = replace(scheme, **({"p_plus": 0} if scheme.name == "sparse" else {}))
    edges, _ = scheme.sample(star, 4, Noise(0, "votes"), range(4000))
    kept = torch.zeros(4000, 4).index_put((edges[0] // 4, edges[0] % 4), torch.ones(()))
    expected = torch.from_numpy(scheme.survival(np.array([3, 1, 1, 1]))).float()
    torch.testing.assert_close(kept.mean(0), expected, atol=0.03, rtol=0)


class Counted(nn.Module):
    """A model that counts its passes, and may be stopped."""

    def __init__(self, stop_after: int = 10**9) -> None:
        super().__init__()
        self.passes = 0
        self.stop_after = stop_after

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.passes >= self.stop_after:
            raise KeyboardInterrupt
        self.passes += 1
        return trained()(x, edge_index)


def counter(model: nn.Module, folder: Path, **options: Any) -> VoteCounter:
    store = ArtifactStore(folder)
    given = {"scheme": SCHEMES[0], "seed": 0, "key": {}, "per_pass": 7} | options
    return VoteCounter(model, targets=graph().index_test, store=store, **given)


@each_scheme
def test_graphs_side_by_side_are_as_each_by_itself(scheme: Any) -> None:
    x, edges, noise, gcn = graph().x, graph().edge_index, Noise(0, "votes"), trained()
    args = gcn, x, edges, scheme, noise
    with torch.no_grad():
        together = noisy_logits(*args, [3, 0, 9])
        alone = torch.cat([noisy_logits(*args, [draw]) for draw in (3, 0, 9)])
    torch.testing.assert_close(together, alone)
    assert (together[0] - together[1]).abs().max() > 0.1
    assert graphs_per_pass(x, edges, scheme, check_locality(gcn, x, edges, scheme)) == 100


@each_scheme
def test_votes_do_not_depend_on_how_they_are_counted(scheme: Any, tmp_path: Path) -> None:
    given = (graph().x, graph().edge_index)
    votes = counter(trained(), tmp_path / "a", scheme=scheme, per_pass=7)("votes", 130, *given)
    shuffled = graph().edge_index[:, torch.randperm(graph().edge_index.size(1))]
    for per_pass in (1, 50):  # whole graphs, and nodes with edges alone
        by = counter(trained(), tmp_path / str(per_pass), scheme=scheme, per_pass=per_pass)
        assert torch.equal(votes, by("votes", 130, graph().x, shuffled))
    assert (votes.sum(1) == 130).all()
    other = counter(trained(), tmp_path / "a", scheme=scheme, seed=1)("votes", 130, *given)
    selection = counter(trained(), tmp_path / "a", scheme=scheme)("selection", 130, *given)
    assert not torch.equal(votes, other)
    assert not torch.equal(votes, selection)


@dataclass(frozen=True, kw_only=True)
class OfHubs(SparseSmoothing):
    """A scheme of one's own, that spares some nodes."""

    spared: int = 0

    def sample(self, edge_index: Tensor, *args: Any, **options: Any) -> Any:
        return super().sample(edge_index[:, (edge_index >= self.spared).all(0)], *args, **options)


def test_votes_of_a_scheme_with_other_code_or_options_are_others(tmp_path: Path) -> None:
    given = (graph().x, graph().edge_index)
    schemes = [SparseSmoothing(), OfHubs(spared=30), OfHubs(spared=60)]
    for scheme in schemes:
        votes, fresh = (
            counter(trained(), tmp_path / folder, scheme=scheme, per_pass=50)("votes", 50, *given)
            for folder in ("shared", str(schemes.index(scheme)))
        )
        assert torch.equal(votes, fresh)


def test_a_count_that_was_cut_off_goes_on_where_it_stopped(tmp_path: Path) -> None:
    given = (graph().x, graph().edge_index)
    stopped = Counted(stop_after=7)
    with pytest.raises(KeyboardInterrupt):
        counter(stopped, tmp_path, per_pass=20)("votes", 200, *given)
    resumed = Counted()
    votes = counter(resumed, tmp_path, per_pass=20)("votes", 300, *given)
    assert resumed.passes == 1 + 10  # the graph without edges, the second hundred and the third
    assert torch.equal(votes, counter(trained(), tmp_path / "new")("votes", 300, *given))
    assert torch.equal(votes, counter(done := Counted(), tmp_path)("votes", 300, *given))
    assert done.passes == 0


@each_scheme
def test_the_smoothed_class_is_that_of_most_draws(scheme: Any) -> None:
    x, edges = graph().x, graph().edge_index
    smoothed = SmoothedModel(trained(), scheme, draws=9, per_pass=4).eval()
    with torch.no_grad():
        logits = noisy_logits(trained(), x, edges, scheme, Noise(0, "model"), range(9))
        votes = torch.nn.functional.one_hot(logits.argmax(2), 7).sum(0)
        found = smoothed(x, edges)
        assert torch.equal(smoothed(x, edges.flip(0)).argmax(1), found.argmax(1))
    torch.testing.assert_close(found.exp() * 16, votes + 1.0)
    assert torch.equal(found.argmax(1), votes.argmax(1))


@each_scheme
def test_the_gradient_is_that_of_the_mean_probabilities(scheme: Any) -> None:
    x, edges = graph().x.clone().requires_grad_(), graph().edge_index
    weight = torch.ones(edges.size(1), requires_grad=True)
    smoothed = SmoothedModel(trained(), scheme, draws=5, per_pass=2).eval()
    draws = noisy_logits(trained(), x, edges, scheme, smoothed.noise, range(5), weight)

    def gradients(of: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(of[graph().index_test, 2].sum(), (x, weight))

    expected = gradients(draws.softmax(2).mean(0).log())
    found = gradients(smoothed(x, edges, weight))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    assert all(slope.abs().max() > 0 for slope in expected)


def test_training_meets_a_noise_of_its_own_in_each_pass(
    make_datamodule: Callable[..., Any], make_fit: Callable[..., Any], tmp_path: Any
) -> None:
    torch.manual_seed(0)
    given = graph().x, graph().edge_index
    noisy = NoisyModel(GCN(16, 8, out_channels=7, dropout=0.0), SCHEMES[1]).eval()
    assert torch.equal(noisy(*given), noisy(*given))
    noisy.train()
    torch.manual_seed(0)
    first, second = noisy(*given), noisy(*given)
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(noisy(*given), first)
    before = [parameter.clone() for parameter in noisy.parameters()]
    make_fit(max_epochs=2)(noisy, make_datamodule(), directory=tmp_path)
    assert any((a != b).any() for a, b in zip(before, noisy.parameters(), strict=True))


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


def test_pairs_are_numbered_one_after_another() -> None:
    numbers = np.arange(10)
    assert pairs(numbers).T.tolist() == [
        [0, 1], [0, 2], [1, 2], [0, 3], [1, 3], [2, 3], [0, 4], [1, 4], [2, 4], [3, 4]
    ]  # fmt: skip
    high = np.array([2, 10**4, 3 * 10**6, 2 * 10**8])
    ends = np.concatenate([high * (high - 1) // 2 - 1, high * (high - 1) // 2])
    for edges in (pairs(ends), pairs(ends)[::-1].copy()):
        assert pair_numbers(torch.from_numpy(edges)).tolist() == ends.tolist()


@pytest.mark.parametrize("probability", [1e-19, 1e-25, 1e-300])
def test_a_tiny_probability_chooses_no_pair(probability: float) -> None:
    assert Noise(0, "votes").chosen_pairs(probability, 0, 1000).size == 0
