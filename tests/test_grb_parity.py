"""The comparison with GRB, without GRB: its table, and weights of its models in ours."""

import json
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests import oracles
from tests.graphs import CHANNELS, NODES, random_edges, random_signal
from tests.test_experiments import ROOT, script

FOLDER = ROOT / "experiments" / "grb_parity"
WIDE, CLASSES, HEADS = 6, 3, 2
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


def norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}__weight": (width,), f"{name}__bias": (width,)}


def applied(state: State, name: str, x: Tensor) -> Tensor:
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def normed(state: State, name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[1:], state[f"{name}.weight"], state[f"{name}.bias"])


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


def grb_gin(state: State, x: Tensor) -> Tensor:
    a = oracles.adjacency(*edges(), NODES)
    for i in (0, 2):
        x, conv = normed(state, f"layers.{i}", x), f"layers.{i + 1}"
        x = a @ x + (1 + state[f"{conv}.eps"]) * x
        x = applied(state, f"{conv}.linear2", applied(state, f"{conv}.linear1", x).relu())
        moments = (state[f"{conv}.norm.running_{of}"] for of in ("mean", "var"))
        weights = (state[f"{conv}.norm.{of}"] for of in ("weight", "bias"))
        x = F.batch_norm(x, *moments, *weights).relu()
    return applied(state, "linear2", applied(state, "linear1", x).relu())


def grb_appnp(state: State, x: Tensor, alpha: float = 0.0) -> Tensor:
    x = applied(state, "linear1", normed(state, "layer_norm1", x)).relu()
    x = applied(state, "linear2", normed(state, "layer_norm2", x))
    for _ in range(4):
        x = (1 - alpha) * normalized() @ x + alpha * x
    return x


def grb_gat(state: State, x: Tensor) -> Tensor:
    weight = oracles.adjacency(*edges(), NODES, self_loops=True)

    def conv(name: str, x: Tensor) -> Tensor:
        left, right = state[f"{name}.attn_l"], state[f"{name}.attn_r"]
        heads = (x @ state[f"{name}.fc.weight"].T).view(NODES, *left.shape[1:])
        at_src, at_dst = (heads * left).sum(-1), (heads * right).sum(-1)
        sums = [
            oracles.softmax(F.leaky_relu(at_dst[:, h, None] + at_src[:, h], 0.2), weight)
            @ heads[:, h]
            for h in range(left.size(1))
        ]
        return torch.cat(sums, 1) + state[f"{name}.bias"]

    for i in (0, 2):
        x = F.leaky_relu(conv(f"layers.{i + 1}", normed(state, f"layers.{i}", x)))
    return conv("layers.4", x)


def gat_layer(place: int, before: int, heads: int, width: int) -> dict[str, tuple[int, ...]]:
    name = f"layers__{place}"
    return {
        f"{name}__fc__weight": (heads * width, before),
        f"{name}__attn_l": (1, heads, width),
        f"{name}__attn_r": (1, heads, width),
        f"{name}__bias": (heads * width,),
    }


def state_of(name: str) -> State:
    if name == "gcn":
        widths = (CHANNELS, WIDE, WIDE, CLASSES)
        parts = [linear(f"layers__{i}__linear", *widths[i : i + 2]) for i in range(3)]
    elif name == "appnp":
        parts = [linear("linear1", CHANNELS, WIDE), linear("linear2", WIDE, CLASSES)]
        parts += [norm("layer_norm1", CHANNELS), norm("layer_norm2", WIDE)]
    elif name == "gat":
        parts = [norm("layers__0", CHANNELS), gat_layer(1, CHANNELS, HEADS, WIDE)]
        parts += [norm("layers__2", HEADS * WIDE), gat_layer(3, HEADS * WIDE, HEADS, WIDE)]
        parts += [gat_layer(4, HEADS * WIDE, CLASSES, HEADS)]
    else:
        parts = [linear("linear1", WIDE, WIDE), linear("linear2", WIDE, CLASSES)]
        for i, before in ((0, CHANNELS), (2, WIDE)):
            conv = f"layers__{i + 1}"
            parts += [norm(f"layers__{i}", before), {f"{conv}__eps": (1,)}]
            parts += [linear(f"{conv}__linear1", before, WIDE)]
            parts += [linear(f"{conv}__linear2", WIDE, WIDE), norm(f"{conv}__norm", WIDE)]
            parts += [{f"{conv}__norm__running_{of}": (WIDE,) for of in ("mean", "var")}]
    shapes = {key: shape for part in parts for key, shape in part.items()}
    state = drawn(**shapes)
    for key in [key for key in state if key.endswith("running_var")]:
        state[key] = state[key].exp()
        state[key.replace("running_var", "num_batches_tracked")] = torch.tensor(3)
    return state


def ours(name: str, state: State, **options: float) -> Tensor:
    model = getattr(script("grb_parity/grb_weights"), name)(state, **options).double()
    return model(random_signal(), edges()[0])  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "formula"), [("gin", grb_gin), ("gat", grb_gat), ("appnp", grb_appnp)]
)
def test_ours_with_the_weights_of_grb_is_its_function(
    name: str, formula: Callable[[State, Tensor], Tensor]
) -> None:
    state = state_of(name)
    options = {"alpha": 0.0, "k": 4} if name == "appnp" else {}
    expected = formula(state, random_signal())
    torch.testing.assert_close(ours(name, state, **options), expected, rtol=1e-5, atol=1e-5)


def test_a_gcn_of_grb_is_ours_but_for_its_biases() -> None:
    state = state_of("gcn")
    assert (ours("gcn", state) - grb_gcn(state, random_signal())).abs().max() > 1e-2
    state = {key: 0 * value if key.endswith("bias") else value for key, value in state.items()}
    expected = grb_gcn(state, random_signal())
    torch.testing.assert_close(ours("gcn", state), expected, rtol=1e-5, atol=1e-5)


def test_the_page_is_what_the_record_says() -> None:
    record = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
    table = script("grb_parity/grb_table")
    page = table.as_markdown(record)
    assert (FOLDER / "parity.md").read_text(encoding="utf-8") == page
