"""The comparison with GRB, without GRB: its table, and weights of its models in ours."""

import json

import torch
from torch import Tensor

from tests import oracles
from tests.graphs import CHANNELS, NODES, random_edges, random_signal
from tests.test_experiments import ROOT, script

FOLDER = ROOT / "experiments" / "grb_parity"
WIDE, CLASSES = 6, 3
State = dict[str, Tensor]


def drawn(**shapes: tuple[int, ...]) -> State:
    """A state dict of drawn numbers, `_` standing for a dot."""
    generator = torch.Generator().manual_seed(0)
    return {
        name.replace("__", "."): torch.randn(*shape, generator=generator).double()
        for name, shape in shapes.items()
    }


def linear(name: str, before: int, after: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}__weight": (after, before), f"{name}__bias": (after,)}


def applied(state: State, name: str, x: Tensor) -> Tensor:
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def edges() -> tuple[Tensor, Tensor]:
    edge_index, _ = random_edges(symmetric=True)
    return edge_index, torch.ones(edge_index.size(1), dtype=torch.float64)


def normalized() -> Tensor:
    return oracles.normalized_adjacency(*edges(), NODES)


# GRB's models, as its code computes them, on n x n matrices.


def grb_gcn(state: State, x: Tensor) -> Tensor:
    for i in range(3):
        x = normalized() @ applied(state, f"layers.{i}.linear", x)
        x = x.relu() if i < 2 else x
    return x


def state_of_gcn() -> State:
    widths = (CHANNELS, WIDE, WIDE, CLASSES)
    parts = [linear(f"layers__{i}__linear", *widths[i : i + 2]) for i in range(3)]
    return drawn(**{key: shape for part in parts for key, shape in part.items()})


def ours(name: str, state: State, **options: float) -> Tensor:
    model = getattr(script("grb_parity/grb_weights"), name)(state, **options).double()
    return model(random_signal(), edges()[0])  # type: ignore[no-any-return]


def test_a_gcn_of_grb_is_ours_but_for_its_biases() -> None:
    state = state_of_gcn()
    assert (ours("gcn", state) - grb_gcn(state, random_signal())).abs().max() > 1e-2
    state = {key: 0 * value if key.endswith("bias") else value for key, value in state.items()}
    expected = grb_gcn(state, random_signal())
    torch.testing.assert_close(ours("gcn", state), expected, rtol=1e-5, atol=1e-5)


def test_the_page_is_what_the_record_says() -> None:
    record = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
    table = script("grb_parity/grb_table")
    page = table.as_markdown(record)
    assert (FOLDER / "parity.md").read_text(encoding="utf-8") == page
