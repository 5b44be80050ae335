"""Weights of GRB 0.1.0's models in this project's: state dicts, renamed; GRB is not imported.

| model | the same function |
|---|---|
| GCN | if its biases are 0: GRB adds them before the sum over neighbours, A (X W + b) |
| GIN | always; a bias in front of batch norm, which ours leaves out, moves its running mean |
| APPNP | if alpha is 0: GRB's walk is lazy, Z <- (1 - alpha) A Z + alpha Z, without a restart |
| GAT | always, but not as ours is built: GRB swaps heads and width of the last layer, and norms one
layer less |
"""

from collections.abc import Mapping

from torch import Tensor, nn

from robust_diffusion.models import APPNP, GAT, GCN, GIN
from robust_diffusion.models.convolutional import GATConv

State = Mapping[str, Tensor]


def gcn(state: State) -> GCN:
    """GRB's `GCN`, without layer norm."""
    count = len({key.split(".")[1] for key in state})
    weights = [state[f"layers.{i}.linear.weight"] for i in range(count)]
    *hidden, classes = (len(weight) for weight in weights)
    model = GCN(weights[0].size(1), hidden, classes, num_layers=count)
    renamed = {f"layers.{i}.lin.weight": weight for i, weight in enumerate(weights)}
    renamed |= {f"layers.{i}.bias": state[f"layers.{i}.linear.bias"] for i in range(count)}
    model.load_state_dict(renamed)
    return model.eval()


def gin(state: State) -> GIN:
    """GRB's `GIN`, with layer norm and batch norm."""
    count = sum(key.endswith(".eps") for key in state)
    hidden = [len(state[f"layers.{2 * i + 1}.linear1.weight"]) for i in range(count)]
    model = GIN(
        state["layers.0.weight"].numel(), hidden, len(state["linear2.bias"]), num_layers=count + 1
    )
    renamed: dict[str, Tensor] = {}
    for i in range(count):
        norm, conv = f"layers.{2 * i}", f"layers.{2 * i + 1}"
        batch_norm = _part(state, f"{conv}.norm")
        batch_norm["running_mean"] = batch_norm["running_mean"] - state[f"{conv}.linear2.bias"]
        renamed |= _named(f"norms.{i}", _part(state, norm))
        renamed |= _named(f"layers.{i}.nn.0", _part(state, f"{conv}.linear1"))
        renamed |= _named(f"layers.{i}.nn.3", batch_norm)
        renamed[f"layers.{i}.nn.2.weight"] = state[f"{conv}.linear2.weight"]
        renamed[f"layers.{i}.eps"] = state[f"{conv}.eps"]
    for place, name in ((0, "linear1"), (3, "linear2")):
        renamed |= _named(f"layers.{count}.{place}", _part(state, name))
    model.load_state_dict(renamed)
    return model.eval()


def appnp(state: State, *, alpha: float, k: int) -> APPNP:
    """GRB's `APPNP`, with layer norm.

    Args:
        state: Its state dict.
        alpha: Share of a node's own state in each step of its walk.
        k: Steps of its walk.
    """
    wide, classes = state["linear1.weight"], state["linear2.weight"]
    sizes = wide.size(1), len(wide), len(classes)
    model = APPNP(*sizes, num_layers=2, num_iterations=k, teleport=alpha)
    renamed: dict[str, Tensor] = {}
    for i in range(2):
        renamed |= _named(f"layers.{i}", _part(state, f"linear{i + 1}"))
        renamed |= _named(f"norms.{i}", _part(state, f"layer_norm{i + 1}"))
    model.load_state_dict(renamed)
    return model.eval()


def gat(state: State) -> GAT:
    """GRB's `GAT`, with layer norm: its last layer has a head per class, as wide as `num_heads`."""
    places = sorted({int(key.split(".")[1]) for key in state if ".attn_l" in key})
    shapes = [state[f"layers.{place}.attn_l"].shape for place in places]
    heads, classes = shapes[0][1], shapes[-1][1]
    hidden = [shape[2] for shape in shapes[:-1]]
    entry = state["layers.0.weight"].numel()
    model = GAT(entry, hidden, classes, num_layers=len(places), heads=heads)
    model.layers[-1] = GATConv(heads * hidden[-1], shapes[-1][2], heads=classes)
    model.norms[-1] = nn.Identity()
    renamed: dict[str, Tensor] = {}
    for i, place in enumerate(places):
        conv = _part(state, f"layers.{place}")
        renamed |= {
            f"layers.{i}.lin.weight": conv["fc.weight"],
            f"layers.{i}.att_src": conv["attn_l"],
            f"layers.{i}.att_dst": conv["attn_r"],
            f"layers.{i}.bias": conv["bias"],
        }
        if i < len(places) - 1:
            renamed |= _named(f"norms.{i}", _part(state, f"layers.{place - 1}"))
    model.load_state_dict(renamed)
    return model.eval()


def _part(state: State, name: str) -> dict[str, Tensor]:
    start = f"{name}."
    return {key.removeprefix(start): value for key, value in state.items() if key.startswith(start)}


def _named(name: str, part: State) -> dict[str, Tensor]:
    return {f"{name}.{key}": value for key, value in part.items()}
