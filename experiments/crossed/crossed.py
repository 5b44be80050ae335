"""Trained networks crossed with attacked graphs: each network of some cells on each one's graph.

    python -m robust_diffusion.run -m model=gat dataset=coauthor fidelity=released \
        attack=[tdgia] seed=0,1,2,3,4 logger=none
    python experiments/crossed/crossed.py outputs/records.jsonl --attack tdgia --name gat-coauthor
    python experiments/crossed/crossed.py --check

The first command leaves networks and graphs in its store, and the second tests every pair. The
accuracies are kept in `<name>.json`, and `<name>.md` is made of them. With `--check` nothing is
run or written; a view that is out of date is an error.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from robust_diffusion.attacks import seeded
from robust_diffusion.paper.figures.spec import compose_cell, train_cell
from robust_diffusion.records.records import latest_by_cell, read_records
from robust_diffusion.results.markdown import markdown_table
from robust_diffusion.system.artifact import read_artifact
from robust_diffusion.system.files import write_whole

HERE = Path(__file__).parent


def main() -> None:
    """Cross the cells of a file of records, or compare the views with what was recorded."""
    parser = argparse.ArgumentParser(description="Test each network on each attacked graph.")
    parser.add_argument("records", nargs="?", type=Path, help="of the cells, seeds apart alike")
    parser.add_argument("--attack", default="tdgia", help="default: tdgia")
    parser.add_argument("--name", help="of the study")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if out of date")
    chosen = parser.parse_args()
    if chosen.check:
        wrong = [
            path.with_suffix(".md")
            for path in sorted(HERE.glob("*.json"))
            if path.with_suffix(".md").read_text(encoding="utf-8") != view(_read(path))
        ]
        sys.exit("\n".join(f"{path}: differs from its record" for path in wrong) or None)
    if chosen.records is None or chosen.name is None:
        parser.error("name records and --name, or --check")
    study = cross(chosen.records, chosen.attack)
    for suffix, text in {".json": json.dumps(study, indent=1) + "\n", ".md": view(study)}.items():
        path = HERE / f"{chosen.name}{suffix}"
        sys.stdout.write(f"{write_whole(path, text, option='crossed:')}\n")


def cross(path: Path, attack: str) -> dict[str, Any]:
    """Accuracy in 0..1 of each seed's network at the targets of each seed's attacked graph.

    Args:
        path: Records, beside the store of their run.
        attack: Whose graphs.
    """
    records = sorted(latest_by_cell(read_records(path)).values(), key=lambda r: r["seed"])
    store = path.with_name("store")
    graphs = {}
    for record in records:
        (file,) = store.rglob(record["files"][attack])
        graphs[record["seed"]] = read_artifact(file).tensors
    rows = {}
    for record in records:
        options = [f"{k}={v}" for k, v in record["overrides"].items() if not k.startswith("hydra")]
        cell = compose_cell([*options, f"paths.outputs={path.parent}"])
        trained, datamodule, _ = train_cell(cell, f"seed {record['seed']}")
        assert trained.reused, "not from the store"
        clean, targets = datamodule.graph, datamodule.target_nodes
        row = {}
        for seed, tensors in graphs.items():
            x = clean.x.index_copy(0, tensors["changed_nodes"], tensors["changed_x"])
            with torch.no_grad(), seeded(record["seed"]):
                logits = trained.model(torch.cat([x, tensors["injected_x"]]), tensors["edge_index"])
            right = logits[targets].argmax(1) == clean.y[targets]
            row[str(seed)] = float(right.double().mean())
        rows[str(record["seed"])] = row
    first = records[0]
    keys = ("dataset", "model", "flow", "fidelity", "code")
    return {"attack": attack, "accuracy": rows} | {key: first[key] for key in keys}


def view(study: dict[str, Any]) -> str:
    """The study in Markdown: the matrix, its means, and how the spread is shared out.

    Args:
        study: As `cross` returns it.
    """
    matrix = 100 * pd.DataFrame(study["accuracy"]).T  # a row per network
    networks, graphs = matrix.mean(axis=1), matrix.mean()
    rest = matrix.sub(networks, axis=0).sub(graphs, axis=1) + matrix.to_numpy().mean()
    squares = {
        "networks": matrix.shape[1] * ((networks - networks.mean()) ** 2).sum(),
        "graphs": matrix.shape[0] * ((graphs - graphs.mean()) ** 2).sum(),
        "their interaction": (rest**2).to_numpy().sum(),
    }
    total = sum(squares.values())
    shares = ", ".join(f"{name} {100 * of / total:.0f} %" for name, of in squares.items())
    named = study["flow"] or study["model"]
    shown = matrix.map("{:.2f}".format)
    shown.columns = [f"graph {seed}" for seed in shown.columns]
    shown["mean"] = networks.map("{:.2f}".format)
    shown.insert(0, "network", [f"seed {seed}" for seed in shown.index])
    last = {"network": "mean", "mean": f"{matrix.to_numpy().mean():.2f}"}
    last |= {f"graph {seed}": f"{mean:.2f}" for seed, mean in graphs.items()}
    table = pd.concat([shown, pd.DataFrame([last])], ignore_index=True)
    title = (
        f"**{named} on {study['dataset']}, fidelity={study['fidelity']}.** Accuracy in % of each "
        f"seed's network on the graph that {study['attack']} made on each seed's surrogate. "
        f"Shares of the sum of squares: {shares}."
    )
    return f"{title}\n\n{markdown_table(table, ['network'])}\n"


def _read(path: Path) -> dict[str, Any]:
    study: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return study


if __name__ == "__main__":
    main()
