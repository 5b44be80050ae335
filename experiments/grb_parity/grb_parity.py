"""GRB 0.1.0 beside this project: the same graph, weights, budget and seeds.

    make grb-parity

GRB's models are trained, mapped into ours (GAT apart), and attacked by GRB's attacks and by ours.
GRB's model judges all attacked graphs, through `GRBModel`. The record goes to `--out`, and the
accuracies are printed; `parity.md` has those of the finished study. `--smoke` is a small drawn
graph and few steps.

Our GIN is the same function as GRB's. Our GCN is if its biases are 0, since GRB adds them before
the sum over neighbours, and our APPNP if alpha is 0, since GRB's walk is lazy, without a restart.
"""

import argparse
import contextlib
import importlib.metadata
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks import (
    FGSM,
    PGD,
    SPEIT,
    TDGIA,
    Attack,
    Budget,
    PerturbedGraph,
    RandomInjection,
    Task,
    spent_budget,
)
from robust_diffusion.attacks.audit import audit, read_perturbed
from robust_diffusion.attacks.losses import LossName
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.data import GraphDataModule
from robust_diffusion.models import APPNP, GCN, GIN, GRBModel
from robust_diffusion.models.victim import Victim
from robust_diffusion.system.files import write_whole

State = Mapping[str, Tensor]
Case = tuple[str, str, Callable[[dict[str, Any]], Any] | None, Attack | None]
"""Name of an attack, its choice, and the attack in GRB and here, `None` where it is missing."""

SMOKE = [
    *("dataset=synthetic", "dataset.source.num_nodes=200", "dataset.source.num_edges=400"),
    *("dataset.source.num_features=16", "dataset.budget.max_injected_nodes=5"),
    "dataset.budget.max_edges_per_injected_node=5",
]
RATE = 0.01
"""Learning rate of training and of attacks, and length of a sign step; GRB's pipeline's."""

ALPHA, STEPS_OF_APPNP = 0.01, 10  # GRB's defaults


@dataclass(frozen=True, eq=False)
class Known:
    """GRB's model, trained, and what both sides know of the graph."""

    name: str
    seed: int
    grb: nn.Module
    judge: GRBModel
    normalize: Callable[[Any], Any]
    datamodule: GraphDataModule
    budget: Budget


class DGLForm(nn.Module):
    """GRB's GAT, which takes a scipy matrix for DGL, called as GRB's torch models are."""

    model_type = "torch"

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, adj: Tensor, dropout: float = 0.0) -> Tensor:
        """Logits; the matrix's entries are the edges, whatever their weight."""
        row, col = adj._indices().numpy()
        ones = np.ones(row.size, dtype=np.float32)
        # DGL's messages run from row to column.
        matrix = sp.coo_matrix((ones, (col, row)), shape=adj.shape)
        logits: Tensor = self.model(x, matrix, dropout)
        return logits


def main() -> None:
    """Measure, write the record, and print the accuracies."""
    parser = argparse.ArgumentParser(description="Compare with GRB 0.1.0, which is imported.")
    parser.add_argument("--smoke", action="store_true", help="a small drawn graph, few steps")
    parser.add_argument("--seeds", type=int, default=1, help="models of each kind (default 1)")
    parser.add_argument("--steps", type=int, default=100, help="steps of an attack (default 100)")
    parser.add_argument("--epochs", type=int, default=200, help="of training (default 200)")
    out = Path("outputs", "grb_parity")
    parser.add_argument("--out", type=Path, default=out, help="folder (default: %(default)s)")
    chosen = parser.parse_args()
    overrides = ["dataset=cora"]
    if chosen.smoke:
        chosen.epochs, chosen.steps, chosen.seeds, overrides = 20, 5, 1, SMOKE
    torch.set_num_threads(1)
    for record in measure(chosen, overrides):
        text = json.dumps(record, indent=1, sort_keys=True)
        path = write_whole(chosen.out / "results.json", f"{text}\n", option="--out")
    models, attacks = (pd.DataFrame(record[key]) for key in ("models", "attacks"))
    table = attacks.pivot_table(
        index=["attack", "choice"], columns=["model", "program"], values="accuracy", sort=False
    )
    shown = [models.set_index("model").to_string(), (100 * table).round(1).to_string(na_rep="-")]
    sys.stdout.write("\n\n".join([*shown, f"{path}\n"]))


def measure(chosen: argparse.Namespace, overrides: list[str]) -> Iterator[dict[str, Any]]:
    """The record, whole after each seed."""
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        cfg = compose("config", ["download=false", *overrides])
    datamodule: GraphDataModule = instantiate(cfg.data)
    budget: Budget = instantiate(cfg.budget).resolve(datamodule.graph.x)
    record: dict[str, Any] = {
        "setting": {key: getattr(chosen, key) for key in ("epochs", "steps", "seeds")}
        | {"dataset": datamodule.name, "budget": asdict(budget)},
        "targets": datamodule.target_nodes.numel(),
        "versions": {name: importlib.metadata.version(name) for name in ("grb", "dgl")},
        "models": [],
        "attacks": [],
    }
    for seed in range(chosen.seeds):
        for name in ("gcn", "gin", "appnp", "gat"):
            known = trained(name, seed, datamodule, budget, chosen.epochs)
            record["models"].append(compare_models(known))
            for case in cases(chosen.steps):
                record["attacks"] += attacked(known, case)
        record["setting"]["seeds"] = seed + 1
        yield record


def to_scipy(graph: Data) -> sp.coo_matrix:
    """The adjacency matrix in the form that GRB 0.1.0 can work with."""
    ones = np.ones(graph.edge_index.size(1), dtype=np.float32)
    return sp.coo_matrix((ones, tuple(graph.edge_index.numpy())), shape=(graph.num_nodes,) * 2)


def trained(
    name: str, seed: int, datamodule: GraphDataModule, budget: Budget, epochs: int
) -> Known:
    """GRB's model, trained on the subgraph of the train nodes, GRB's forward and dropout of 0.5."""
    from grb.utils import fix_seed
    from grb.utils.normalize import GCNAdjNorm

    fix_seed(seed)
    # A dropout of `nn.Module`s would follow the mode; GRB's is handed to each call.
    model = built(name, datamodule.num_features, datamodule.num_classes)
    judge = GRBModel(model, normalization="none" if name == "gin" else "symmetric")
    view = datamodule.view("train")

    def normalize(adjacency: Any) -> Any:
        return adjacency.tocoo() if name == "gin" else GCNAdjNorm(adjacency).tocoo()

    seen = tensor_of(normalize(to_scipy(view)))
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    model.train()
    for _ in range(epochs):
        loss = F.cross_entropy(model(view.x, seen, 0.5), view.y)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    judge.eval()
    return Known(name, seed, model, judge, normalize, datamodule, budget)


def built(name: str, num_features: int, num_classes: int) -> Any:
    """GRB's model of this project's usual width."""
    from grb.model import torch as grb_models

    sizes, wide = (num_features, num_classes), [64, 64]
    if name == "gcn":
        return grb_models.GCN(*sizes, wide)
    if name == "gin":
        return grb_models.GIN(*sizes, wide, layer_norm=True)
    if name == "appnp":
        return grb_models.APPNP(*sizes, 64, layer_norm=True, alpha=ALPHA, k=STEPS_OF_APPNP)
    from grb.model.dgl import GAT

    return DGLForm(GAT(*sizes, wide, num_heads=4, layer_norm=True))


def tensor_of(matrix: Any) -> Tensor:
    """GRB's conversion to a torch tensor."""
    from grb.utils import adj_preprocess

    return adj_preprocess(matrix)  # type: ignore[no-any-return]


def compare_models(known: Known) -> dict[str, Any]:
    """Logits on the clean graph of GRB's model, of ours with its weights, and of the adapter."""
    graph = known.datamodule.graph
    mapped = {"gcn": gcn, "gin": gin, "appnp": appnp}.get(known.name)
    with torch.no_grad():
        theirs = known.grb(graph.x, tensor_of(known.normalize(to_scipy(graph))))
        adapter = known.judge(graph.x, graph.edge_index)
        ours = mapped(known.grb.state_dict())(graph.x, graph.edge_index) if mapped else adapter
    return {
        "model": known.name,
        "seed": known.seed,
        "grb_accuracy": accuracy(known, theirs),
        "ours_accuracy": accuracy(known, ours),
        "largest_logit": float(theirs.abs().max()),
        "largest_difference": float((theirs - ours).abs().max()),
        "largest_difference_of_the_adapter": float((theirs - adapter).abs().max()),
    }


def accuracy(known: Known, logits: Tensor) -> float:
    """Share of the target nodes that are classified right, in 0..1."""
    targets, labels = known.datamodule.target_nodes, known.datamodule.graph.y
    return float((logits.argmax(1)[targets] == labels[targets]).double().mean())


def cases(steps: int) -> Iterator[Case]:
    """Every attack with every choice that one of both has."""
    from grb.attack.fgsm import FGSM as GRBFGSM
    from grb.attack.pgd import PGD as GRBPGD
    from grb.attack.rnd import RND
    from grb.attack.speit import SPEIT as GRBSPEIT
    from grb.attack.tdgia import TDGIA as GRBTDGIA

    def with_(cls: Any, **options: Any) -> Callable[[dict[str, Any]], Any]:
        return lambda budget: cls(**budget, **options)

    # GRB 0.1.0's default is `nll_loss`, of logits; its later code's is the cross-entropy.
    losses: dict[LossName, Any] = {"own_logit": F.nll_loss, "cross_entropy": F.cross_entropy}
    for choice, loss in losses.items():
        by_rate: dict[str, Any] = {"n_epoch": steps, "loss": loss}
        speit = SPEIT(num_steps=steps, learning_rate=RATE, loss=choice)
        yield ("speit", choice, with_(GRBSPEIT, lr=RATE, **by_rate), speit)
        pgd = PGD(num_steps=steps, step_size=RATE, loss=choice)
        yield ("pgd", choice, with_(GRBPGD, epsilon=RATE, **by_rate), pgd)
        fgsm = FGSM(num_steps=steps, step_size=RATE, loss=choice)
        yield ("fgsm", choice, with_(GRBFGSM, epsilon=RATE, **by_rate), fgsm)
    yield ("random", "", with_(RND), RandomInjection())
    sequential: dict[str, Any] = {"lr": RATE, "n_epoch": steps}
    yield ("tdgia", "random edges", with_(GRBTDGIA, **sequential), None)
    by_defect = with_(GRBTDGIA, inject_mode="tdgia", **sequential)
    yield ("tdgia", "grb", by_defect, TDGIA(num_steps=steps, variant="grb"))
    yield ("tdgia", "strict", None, TDGIA(num_steps=steps, variant="strict"))


def attacked(known: Known, case: Case) -> Iterator[dict[str, Any]]:
    """What GRB's form of an attack does, and what ours does."""
    attack, choice, theirs, ours = case
    head = {"model": known.name, "seed": known.seed, "attack": attack, "choice": choice}
    if theirs is not None:
        run = head | {"program": "grb"}
        try:
            yield run | by_grb(known, theirs)
        except IndexError as error:  # of TDGIA, which runs out of targets
            yield run | {"error": f"{type(error).__name__}: {error}"}
    if ours is not None:
        yield head | {"program": "ours"} | by_ours(known, ours)


def by_grb(known: Known, attack: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """GRB's attack, its graph taken from the files that GRB's own functions write."""
    from grb.utils import fix_seed, save_adj, save_features

    graph, budget = known.datamodule.graph, known.budget
    low, high = budget.limits
    limits = {"feat_lim_min": low, "feat_lim_max": high, "verbose": False}
    limits |= {"n_inject_max": budget.max_injected_nodes}
    limits |= {"n_edge_max": budget.max_edges_per_injected_node}
    mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
    mask[known.datamodule.target_nodes] = True
    fix_seed(known.seed)
    started = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        adjacency, features = attack(limits).attack(
            known.grb, to_scipy(graph), graph.x, mask, known.normalize
        )
    seconds = time.perf_counter() - started
    features = features.detach()
    with torch.no_grad():
        as_listed = known.grb(torch.cat([graph.x, features]), tensor_of(known.normalize(adjacency)))
    with TemporaryDirectory() as folder:
        save_adj(adjacency.tocsr()[graph.num_nodes :], folder)
        save_features(features, folder)
        read = read_perturbed(Path(folder, "adj.pkl"), graph)
    perturbed = PerturbedGraph(read.x, read.edge_index, graph.num_nodes)
    return outcome(known, perturbed, seconds) | {
        "edges_listed": (adjacency.nnz - graph.edge_index.size(1)) // 2,
        "told_by_the_auditor": [violation.code for violation in read.violations],
        "accuracy_as_listed": accuracy(known, as_listed[: graph.num_nodes]),
    }


def by_ours(known: Known, attack: Attack) -> dict[str, Any]:
    """Our attack on GRB's model."""
    graph = known.datamodule.graph
    generator = torch.Generator().manual_seed(known.seed)
    started = time.perf_counter()
    victim = Victim(known.judge, graph.x, graph.edge_index)
    truth = Task(graph, known.datamodule.target_nodes, graph.y)
    task = truth.attacker_view(victim, "predictions")
    perturbed = attack(victim, task, known.budget, generator)
    return outcome(known, perturbed, time.perf_counter() - started)


def outcome(known: Known, perturbed: PerturbedGraph, seconds: float) -> dict[str, Any]:
    """What the attacked graph costs and does, judged by GRB's model."""
    graph = known.datamodule.graph
    with torch.no_grad():
        logits = known.judge(perturbed.x, perturbed.edge_index)
    spent = spent_budget(graph, perturbed)
    targets = known.datamodule.target_nodes
    violations = audit(
        graph, perturbed, kind="injection", target_nodes=targets, **known.budget.bounds
    )
    return {
        "accuracy": accuracy(known, logits[: graph.num_nodes]),
        "seconds": round(seconds, 2),
        "nodes": spent.injected_nodes,
        "edges": spent.injected_edges,
        "feature_range": spent.feature_range,
        "violations": [violation.code for violation in violations],
    }


def gcn(state: State) -> GCN:
    """GRB's `GCN`, without layer norm."""
    count = len({key.split(".")[1] for key in state})
    weights = [state[f"layers.{i}.linear.weight"] for i in range(count)]
    *hidden, classes = (len(weight) for weight in weights)
    model = GCN(weights[0].size(1), hidden, out_channels=classes, num_layers=count)
    renamed = {f"layers.{i}.lin.weight": weight for i, weight in enumerate(weights)}
    renamed |= {f"layers.{i}.bias": state[f"layers.{i}.linear.bias"] for i in range(count)}
    model.load_state_dict(renamed)
    return model.eval()


def gin(state: State) -> GIN:
    """GRB's `GIN`, with layer norm and batch norm."""
    count = sum(key.endswith(".eps") for key in state)
    hidden = [len(state[f"layers.{2 * i + 1}.linear1.weight"]) for i in range(count)]
    model = GIN(
        state["layers.0.weight"].numel(),
        hidden,
        out_channels=len(state["linear2.bias"]),
        num_layers=count + 1,
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


def appnp(state: State) -> APPNP:
    """GRB's `APPNP`, with layer norm."""
    wide, classes = state["linear1.weight"], state["linear2.weight"]
    sizes = wide.size(1), len(wide)
    model = APPNP(
        *sizes,
        out_channels=len(classes),
        num_layers=2,
        num_iterations=STEPS_OF_APPNP,
        teleport=ALPHA,
    )
    renamed: dict[str, Tensor] = {}
    for i in range(2):
        renamed |= _named(f"layers.{i}", _part(state, f"linear{i + 1}"))
        renamed |= _named(f"norms.{i}", _part(state, f"layer_norm{i + 1}"))
    model.load_state_dict(renamed)
    return model.eval()


def _part(state: State, name: str) -> dict[str, Tensor]:
    start = f"{name}."
    return {key.removeprefix(start): value for key, value in state.items() if key.startswith(start)}


def _named(name: str, part: State) -> dict[str, Tensor]:
    return {f"{name}.{key}": value for key, value in part.items()}


if __name__ == "__main__":
    os.environ.setdefault("DGLBACKEND", "pytorch")
    main()
