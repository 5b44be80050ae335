"""Right-hand sides beside numbers of the papers' public implementations, on equal weights.

The numbers were computed once, by the implementations that the papers name, on a path of four
nodes with the weights below. Of GREAD and ACMP they are those of the random walk's weights, which
an attention without keys has; of HANG-quad, the halves in Hamilton's order.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from robust_diffusion.flows import ACMP, GREAD, Flow, GraphCON, Hang, HangQuad
from robust_diffusion.integrators import solve_fractional
from robust_diffusion.operators import Graph

TIME = torch.tensor(0.0)
PATH = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
WELL = [
    [0.227324357, -0.06958229],
    [-0.319196466, 0.005496342],
    [0.131303241, 0.577610431],
    [-0.299351651, -0.298390908],
]


def wave(*shape: int, at: float = 0.0) -> Tensor:
    """sin(at), sin(at + 1), ... in float64."""
    count = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    return torch.sin(count + at).view(shape)


def uniform() -> dict[str, Tensor]:
    """Attention without keys, and the rates."""
    return {
        "attention.key.weight": torch.zeros(2, 2),
        "attention.query.weight": torch.zeros(2, 2),
    }


Z, P = wave(4, 2), wave(4, 2, at=2)
CASES: list[tuple[type[Flow], dict[str, Any], dict[str, Tensor], Tensor, list[list[float]]]] = [
    (
        Hang,
        {"scale": "graph"},
        {
            "inner.weight": wave(2, 4),
            "inner.bias": wave(2, at=1),
            "outer.weight": wave(1, 2, at=2),
            "outer.bias": wave(1, at=3),
        },
        torch.cat([Z, P], 1),
        [
            [0.116614525, 0.05224772, 0.036902133, -0.073766474],
            [0.165973055, 0.061383905, 0.038496999, -0.117967344],
            [0.183142784, 0.04979584, 0.023095411, -0.148109097],
            [0.143242923, 0.035737173, 0.01459501, -0.119051789],
        ],
    ),
    (
        HangQuad,
        {"scale": "graph"},
        {"linear.weight": wave(2, 2), "linear.bias": wave(2, at=1), "ends": wave(2, 2, at=2)},
        torch.cat([Z, P], 1),
        [
            [0.041690429, -0.089014054, -0.340995102, -0.321698512],
            [0.043789728, -0.061412875, -0.324309585, -0.281279726],
            [0.091743151, 0.100905031, -0.562892372, -0.471394338],
            [0.107092872, 0.132367175, -0.040464625, -0.050635656],
        ],
    ),
    (
        GREAD,
        {"reaction": "bspm", "spectral_norm": False},
        {
            **uniform(),
            "raw_diffusion_rate": wave(2),
            "raw_reaction_rate": wave(2, at=1),
        },
        Z,
        [
            [0.368412979, -0.072394119],
            [-0.50159769, -0.193352725],
            [0.44637974, 0.64113674],
            [-0.285586054, -0.599281905],
        ],
    ),
    (
        GREAD,
        {"reaction": "allen_cahn", "spectral_norm": False},
        {
            **uniform(),
            "raw_diffusion_rate": wave(2),
            "raw_reaction_rate": wave(2, at=1),
        },
        Z,
        WELL,
    ),
    (
        ACMP,
        {"repulsion": 0.0, "spectral_norm": False},
        {**uniform(), "raw_attraction": wave(2), "raw_well": wave(2, at=1)},
        Z,
        WELL,
    ),
]


def build(cls: type[Flow], options: dict[str, Any], weights: dict[str, Tensor]) -> Flow:
    small = {"heads": 1, "attention_channels": 2} if "spectral_norm" in options else {}
    flow = cls(2, **options, **small).double()
    flow.load_state_dict(weights)
    return flow


@pytest.mark.parametrize(
    ("cls", "options", "weights", "state", "published"),
    CASES,
    ids=[" ".join([case[0].__name__, *case[1].get("reaction", "").split()]) for case in CASES],
)
def test_right_hand_side(
    cls: type[Flow],
    options: dict[str, Any],
    weights: dict[str, Tensor],
    state: Tensor,
    published: list[list[float]],
) -> None:
    graph = Graph.from_edge_index(PATH, num_nodes=4, dtype=torch.float64)
    found = build(cls, options, weights)(TIME, state, graph)
    torch.testing.assert_close(found, torch.tensor(published).double(), rtol=0, atol=1e-6)


def test_acceleration_of_graphcon() -> None:
    flow = build(GraphCON, {"frequency": 0.7, "damping": 0.4}, {"linear.weight": wave(2, 2)})
    graph = Graph.from_edge_index(PATH, num_nodes=4, dtype=torch.float64)
    found = flow(TIME, flow.initial_state(Z.abs(), graph), graph)[:, 2:]
    published = [
        [0.402515537, -0.52056509],
        [-0.402605625, 0.449986363],
        [-0.298236954, -0.35650247],
        [0.298478917, -0.213107281],
    ]
    torch.testing.assert_close(found, torch.tensor(published).double(), rtol=0, atol=1e-6)


def test_predictor_of_frond() -> None:
    """Four steps of 1/2; FROND's code takes one for each of the times that it is given."""
    found = solve_fractional(lambda t, y: y.sin() - 0.3 * y, Z, 2.0, 0.7, 4)
    published = [
        [0.0, 1.787675797],
        [1.839269548, 0.475502574],
        [-1.712673022, -1.873145905],
        [-0.888300947, 1.604710336],
    ]
    torch.testing.assert_close(found, torch.tensor(published).double(), rtol=0, atol=1e-6)
