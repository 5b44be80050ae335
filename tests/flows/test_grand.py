import pytest
import torch

from robust_diffusion.errors import ConfigError
from robust_diffusion.flows import Grand
from tests.graphs import CHANNELS, build_flow, random_graph, random_signal, without_type_checks

TIME = torch.tensor(0.0)


def test_edge_weights_are_the_attention() -> None:
    flow, z, graph = build_flow(Grand), random_signal(), random_graph()
    assert torch.equal(flow.edge_weights(z, graph), flow.attention(z, graph))


@pytest.mark.parametrize("rate", [0.0, -1.0, None])
def test_bad_rate_names_its_key(rate: object) -> None:
    with without_type_checks(), pytest.raises(ConfigError, match=rf"flow\.rate={rate}"):
        Grand(CHANNELS, rate=rate)
