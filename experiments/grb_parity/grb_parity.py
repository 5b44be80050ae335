"""GRB 0.1.0 beside this project: the same graph, weights, budget and seeds.

    make grb-parity
    python experiments/grb_parity/grb_parity.py --table      # parity.md from results.json alone

GRB's models are trained, mapped into ours (`grb_weights`), and attacked by GRB's attacks and by
ours. One and the same model judges all attacked graphs: GRB's, through `GRBModel`. The graphs pass
through GRB's files. `--smoke` is a small drawn graph and few steps, written to outputs/.
"""

import argparse
import contextlib
import copy
import importlib.metadata
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grb_table
import grb_weights
import numpy as np
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
    spent_budget,
)
from robust_diffusion.attacks.audit import audit, read_perturbed, write_perturbed
from robust_diffusion.attacks.base import Problem, frozen
from robust_diffusion.attacks.feature_set import FeatureSet
from robust_diffusion.attacks.losses import LossName
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.sources import write_grb
from robust_diffusion.models import GRBModel
from robust_diffusion.system.files import write_whole

HERE = Path(__file__).parent
SMOKE = [
    *("dataset=synthetic", "dataset.source.num_nodes=200", "dataset.source.num_edges=400"),
    *("dataset.source.num_features=16", "dataset.budget.max_injected_nodes=5"),
    "dataset.budget.max_edges_per_injected_node=5",
]
RATE = 0.01
"""Learning rate of training and of attacks, and length of a sign step; GRB's pipeline's."""

ALPHA, STEPS_OF_APPNP = 0.01, 10  # GRB's defaults


@dataclass(frozen=True)
class Setting:
    """Extent of a comparison."""

    epochs: int
    steps: int
    seeds: int
    overrides: list[str]


@dataclass(frozen=True)
class Case:
    """One attack with one choice, in GRB, here, or in both."""

    attack: str
    choice: str
    grb: Callable[[dict[str, Any]], Any] | None
    ours: Attack | None


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
    """Measure and write the record and its table, or the table alone."""
    parser = argparse.ArgumentParser(description="Compare with GRB 0.1.0, which is imported.")
    parser.add_argument("--smoke", action="store_true", help="a small drawn graph, few steps")
    parser.add_argument("--table", action="store_true", help="rebuild the table from the record")
    parser.add_argument("--seeds", type=int, default=1, help="models of each kind (default 1)")
    parser.add_argument("--steps", type=int, default=100, help="steps of an attack (default 100)")
    parser.add_argument("--epochs", type=int, default=200, help="of training (default 200)")
    parser.add_argument("--out", type=Path, help="folder of results.json (default: this one)")
    chosen = parser.parse_args()
    out = chosen.out or (Path("outputs", "grb_parity") if chosen.smoke else HERE)
    path = out / "results.json"
    if not chosen.table:
        torch.set_num_threads(1)
        setting = Setting(chosen.epochs, chosen.steps, chosen.seeds, ["dataset=cora"])
        if chosen.smoke:
            setting = Setting(epochs=20, steps=5, seeds=1, overrides=SMOKE)
        for record in measure(setting):
            text = json.dumps(record, indent=1, sort_keys=True)
            write_whole(path, f"{text}\n", option="--out")
    record = json.loads(path.read_text(encoding="utf-8"))
    page = write_whole(out / "parity.md", grb_table.as_markdown(record), option="--out")
    sys.stdout.write(f"{page}\n")


def measure(setting: Setting) -> Iterator[dict[str, Any]]:
    """The record, whole after each seed."""
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        cfg = compose("config", ["download=false", *setting.overrides])
    datamodule: GraphDataModule = instantiate(cfg.data)
    budget: Budget = instantiate(cfg.budget).resolve(datamodule.graph.x)
    record: dict[str, Any] = {
        "setting": asdict(setting) | {"dataset": datamodule.name, "budget": asdict(budget)},
        "targets": datamodule.target_nodes.numel(),
        "versions": {
            name: importlib.metadata.version(name) for name in ("grb", "dgl", "torch", "scipy")
        },
        "files": files_of_the_dataset(cfg, datamodule),
        "models": [],
        "attacks": [],
    }
    for seed in range(setting.seeds):
        for name in ("gcn", "gin", "appnp", "gat"):
            started = time.perf_counter()
            known = trained(name, seed, datamodule, budget, setting.epochs)
            record["models"].append(compare_models(known))
            for case in cases(setting.steps):
                record["attacks"] += attacked(known, case)
            sys.stderr.write(f"seed {seed}, {name}: {time.perf_counter() - started:.0f} s\n")
        record["setting"]["seeds"] = seed + 1
        yield record


def files_of_the_dataset(cfg: Any, datamodule: GraphDataModule) -> dict[str, Any]:
    """The graph in GRB's layout, as GRB's own `Dataset` reads it."""
    from grb.dataset import Dataset

    graph = datamodule.graph
    with TemporaryDirectory() as folder:
        write_grb(instantiate(cfg.dataset.source)(), Path(folder))
        read = Dataset("grb-cora", folder, mode="easy", feat_norm="arctan", verbose=False)
    edges = to_scipy(graph).tocsr()
    return {
        "features_largest_difference": float((read.features - graph.x).abs().max()),
        "same_edges": bool((read.adj != edges).nnz == 0),
        "same_labels": bool(torch.equal(read.labels, graph.y)),
        "same_targets": bool(np.array_equal(read.index_test, graph.index_test_easy.numpy())),
    }


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


def built(name: str, num_features: int, num_classes: int) -> nn.Module:
    """GRB's model of this project's usual width."""
    from grb.model import torch as grb_models

    sizes, wide = (num_features, num_classes), [64, 64]
    model: nn.Module
    if name == "gcn":
        model = grb_models.GCN(*sizes, wide)
    elif name == "gin":
        model = grb_models.GIN(*sizes, wide, layer_norm=True)
    elif name == "appnp":
        model = grb_models.APPNP(*sizes, 64, layer_norm=True, alpha=ALPHA, k=STEPS_OF_APPNP)
    else:
        from grb.model.dgl import GAT

        model = DGLForm(GAT(*sizes, wide, num_heads=4, layer_norm=True))
    return model


def tensor_of(matrix: Any) -> Tensor:
    """GRB's conversion to a torch tensor."""
    from grb.utils import adj_preprocess

    return adj_preprocess(matrix)  # type: ignore[no-any-return]


def compare_models(known: Known) -> dict[str, Any]:
    """Logits on the clean graph of GRB's model, of ours with its weights, and of the adapter."""
    graph = known.datamodule.graph
    adjacency = tensor_of(known.normalize(to_scipy(graph)))

    def logits(model: nn.Module, weights: Callable[[], nn.Module]) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return model(graph.x, adjacency), weights()(graph.x, graph.edge_index)

    inner = known.grb.model if isinstance(known.grb, DGLForm) else known.grb
    theirs, ours = logits(known.grb, lambda: mapped(known.name, inner, ALPHA))
    with torch.no_grad():
        through_adapter = known.judge(graph.x, graph.edge_index)
    agreeing: Any = copy.deepcopy(inner)
    if known.name == "gcn":
        for layer in agreeing.layers:
            layer.linear.bias.data.zero_()
    if known.name == "appnp":
        agreeing.alpha = 0.0
    called = DGLForm(agreeing) if isinstance(known.grb, DGLForm) else agreeing
    pair = logits(called, lambda: mapped(known.name, agreeing, 0.0))
    return {
        "model": known.name,
        "seed": known.seed,
        "grb_accuracy": accuracy(known, theirs),
        "ours_accuracy": accuracy(known, ours) if ours.shape == theirs.shape else None,
        "largest_logit": float(theirs.abs().max()),
        "largest_difference": float((theirs - ours).abs().max()),
        "largest_difference_where_they_agree": float((pair[0] - pair[1]).abs().max()),
        "largest_difference_of_the_adapter": float((theirs - through_adapter).abs().max()),
    }


def mapped(name: str, model: nn.Module, alpha: float) -> nn.Module:
    """Ours with the weights of GRB's."""
    state = model.state_dict()
    if name == "appnp":
        return grb_weights.appnp(state, alpha=alpha, k=STEPS_OF_APPNP)
    by_name = {"gcn": grb_weights.gcn, "gin": grb_weights.gin, "gat": grb_weights.gat}
    return by_name[name](state)


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
        yield Case("speit", choice, with_(GRBSPEIT, lr=RATE, **by_rate), speit)
        pgd = PGD(num_steps=steps, step_size=RATE, loss=choice)
        yield Case("pgd", choice, with_(GRBPGD, epsilon=RATE, **by_rate), pgd)
        fgsm = FGSM(num_steps=steps, step_size=RATE, loss=choice)
        yield Case("fgsm", choice, with_(GRBFGSM, epsilon=RATE, **by_rate), fgsm)
    yield Case("random", "", with_(RND), RandomInjection())
    sequential: dict[str, Any] = {"lr": RATE, "n_epoch": steps}
    yield Case("tdgia", "random edges", with_(GRBTDGIA, **sequential), None)
    by_defect = with_(GRBTDGIA, inject_mode="tdgia", **sequential)
    yield Case("tdgia", "grb", by_defect, TDGIA(num_steps=steps, variant="grb"))
    yield Case("tdgia", "strict", None, TDGIA(num_steps=steps, variant="strict"))


def attacked(known: Known, case: Case) -> Iterator[dict[str, Any]]:
    """What GRB's form of an attack does, and what ours does."""
    head = {"model": known.name, "seed": known.seed, "attack": case.attack, "choice": case.choice}
    if case.grb is not None:
        run = head | {"program": "grb"}
        try:
            yield run | by_grb(known, case.grb, case.ours)
        except IndexError as error:  # of TDGIA, which runs out of targets
            yield run | {"error": f"{type(error).__name__}: {error}"}
    if case.ours is not None:
        yield head | {"program": "ours"} | by_ours(known, case.ours)


def by_grb(
    known: Known, attack: Callable[[dict[str, Any]], Any], ours: Attack | None
) -> dict[str, Any]:
    """GRB's attack, its graph taken from the files that GRB's own functions write.

    An attack of ours that starts at 0, as GRB's does, is also run on the edges that GRB drew, those
    that are listed twice included: only the features are its own. Not for GAT, to which DGL hands
    an edge that is listed twice as two.
    """
    from grb.utils import fix_seed, save_adj, save_features

    graph, budget = known.datamodule.graph, known.budget
    low, high = budget.limits
    limits = {
        "n_inject_max": budget.max_injected_nodes,
        "n_edge_max": budget.max_edges_per_injected_node,
        "feat_lim_min": low,
        "feat_lim_max": high,
        "verbose": False,
    }
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
        path = Path(folder, "adj.pkl")
        told = [violation.code for violation in read_perturbed(path, graph).violations]
        read = read_perturbed(path, graph, merge_duplicates=True)
    perturbed = PerturbedGraph(read.x, read.edge_index, graph.num_nodes)
    listed = (adjacency.nnz - graph.edge_index.size(1)) // 2
    spent = outcome(known, perturbed, seconds)
    if isinstance(ours, SPEIT | FGSM) and known.name != "gat":
        row, col = (torch.from_numpy(end).long() for end in (adjacency.row, adjacency.col))
        with frozen(known.judge):
            clean = Data(x=graph.x, edge_index=graph.edge_index)
            problem = Problem(ours.name, known.judge, clean, known.datamodule.target_nodes)
            start, edges = torch.zeros_like(features), torch.stack([col, row])
            fitted = ours.fit(problem, start, graph.x, edges, FeatureSet(low, high))
        with torch.no_grad():
            logits = known.judge(torch.cat([graph.x, fitted]), edges)
        spent["accuracy_of_ours_on_its_edges"] = accuracy(known, logits[: graph.num_nodes])
        spent["mean_feature_difference_of_ours"] = float((fitted - features).abs().mean())
    return spent | {
        "edges_listed_twice": listed - spent["edges"],
        "told_by_the_auditor": told,
        "accuracy_as_listed": accuracy(known, as_listed[: graph.num_nodes]),
    }


def by_ours(known: Known, attack: Attack) -> dict[str, Any]:
    """Our attack on GRB's model, its graph written to GRB's files and read back."""
    graph = known.datamodule.graph
    clean = Data(x=graph.x, edge_index=graph.edge_index)
    generator = torch.Generator().manual_seed(known.seed)
    started = time.perf_counter()
    targets = known.datamodule.target_nodes
    perturbed = attack(known.judge, clean, targets, known.budget, generator)
    seconds = time.perf_counter() - started
    with TemporaryDirectory() as folder:
        read = read_perturbed(write_perturbed(Path(folder), perturbed, graph), graph)
    assert torch.equal(read.x, perturbed.x)
    return outcome(known, PerturbedGraph(read.x, read.edge_index, graph.num_nodes), seconds)


def outcome(known: Known, perturbed: PerturbedGraph, seconds: float) -> dict[str, Any]:
    """What the attacked graph costs and does, judged by GRB's model."""
    graph = known.datamodule.graph
    with torch.no_grad():
        logits = known.judge(perturbed.x, perturbed.edge_index)
    spent = spent_budget(graph, perturbed)
    targets = known.datamodule.target_nodes
    violations = audit(
        graph, perturbed, kind="injection", target_nodes=targets, **asdict(known.budget)
    )
    predicted = logits.argmax(1)[targets]
    return {
        "accuracy": accuracy(known, logits[: graph.num_nodes]),
        "classes_predicted": predicted.unique().numel(),
        "seconds": round(seconds, 2),
        "nodes": spent.injected_nodes,
        "edges": spent.injected_edges,
        "feature_range": spent.feature_range,
        "violations": [violation.code for violation in violations],
    }


if __name__ == "__main__":
    os.environ.setdefault("DGLBACKEND", "pytorch")
    main()
