from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.certificates import BiSmoothing, SparseSmoothing
from robust_diffusion.certificates.noise import Noise
from robust_diffusion.certificates.sampling import VoteCounter, graphs_per_pass, noisy_logits
from robust_diffusion.errors import ConfigError
from robust_diffusion.models import GCNSVD, RobustGCN
from robust_diffusion.records.store import ArtifactStore
from tests.attacks.contract import graph, model

SCHEMES = [SparseSmoothing(p_plus=0.01), BiSmoothing(p_e=0.3, p_n=0.3)]


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
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
        self.passes: list[int] = []
        self.stop_after = stop_after

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if len(self.passes) >= self.stop_after:
            raise KeyboardInterrupt
        self.passes.append(x.size(0) // graph().num_nodes)
        return model()(x, edge_index)


def counter(model: nn.Module, folder: Path, **options: Any) -> VoteCounter:
    store = ArtifactStore(folder)
    given = {"scheme": SCHEMES[0], "seed": 0, "key": {}, "per_pass": 7} | options
    return VoteCounter(model, targets=graph().index_test, store=store, **given)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_graphs_side_by_side_are_as_each_by_itself(scheme: Any) -> None:
    x, edges, noise, gcn = graph().x, graph().edge_index, Noise(0, "votes"), model()

    def logits(draws: Sequence[int]) -> Tensor:
        with torch.no_grad():
            return noisy_logits(gcn, x, edges, scheme, noise, draws)

    together = logits([3, 0, 9])
    alone = torch.cat([logits([draw]) for draw in (3, 0, 9)])
    torch.testing.assert_close(together, alone)
    assert (together[0] - together[1]).abs().max() > 0.1
    assert graphs_per_pass(gcn, x, edges, scheme) == 100


def test_votes_do_not_depend_on_how_they_are_counted(tmp_path: Path) -> None:
    given = (graph().x, graph().edge_index)
    votes = counter(model(), tmp_path / "a", per_pass=7)("votes", 130, *given)
    shuffled = graph().edge_index[:, torch.randperm(graph().edge_index.size(1))]
    again = counter(model(), tmp_path / "b", per_pass=50)("votes", 130, graph().x, shuffled)
    assert torch.equal(votes, again)
    assert (votes.sum(1) == 130).all()
    other = counter(model(), tmp_path / "a", seed=1)("votes", 130, *given)
    selection = counter(model(), tmp_path / "a")("selection", 130, *given)
    assert not torch.equal(votes, other)
    assert not torch.equal(votes, selection)


def test_a_count_that_was_cut_off_goes_on_where_it_stopped(tmp_path: Path) -> None:
    given = (graph().x, graph().edge_index)
    stopped = Counted(stop_after=7)
    with pytest.raises(KeyboardInterrupt):
        counter(stopped, tmp_path, per_pass=20)("votes", 200, *given)
    resumed = Counted()
    votes = counter(resumed, tmp_path, per_pass=20)("votes", 300, *given)
    assert resumed.passes == [20] * 10  # of the second hundred and the third
    assert torch.equal(votes, counter(model(), tmp_path / "new")("votes", 300, *given))
    assert torch.equal(votes, counter(done := Counted(), tmp_path)("votes", 300, *given))
    assert done.passes == []


def test_a_model_that_looks_at_all_edges_gets_one_graph_at_a_time() -> None:
    torch.manual_seed(0)
    svd = GCNSVD(16, 8, 7, rank=5).eval()
    assert graphs_per_pass(svd, graph().x, graph().edge_index, SCHEMES[0]) == 1
    sampling = RobustGCN(16, 8, 7, sample_at_test=True).eval()
    for scheme in SCHEMES:
        assert graphs_per_pass(sampling, graph().x, graph().edge_index, scheme) == 1


def test_a_model_that_sees_nodes_without_edges_is_not_certified_against_injection() -> None:
    class Centred(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return model()(x - x.mean(0), edge_index)

    with pytest.raises(ConfigError, match="certificate=bi_smoothing: "):
        graphs_per_pass(Centred().eval(), graph().x, graph().edge_index, SCHEMES[1])
