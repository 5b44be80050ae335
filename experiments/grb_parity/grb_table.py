"""Tables of the comparison with GRB 0.1.0, from its record alone."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from robust_diffusion.system.markdown import markdown_table

NAMES = {"gcn": "GCN", "gin": "GIN", "appnp": "APPNP", "gat": "GAT"}
ATTACKS = {"speit": "SPEIT", "pgd": "PGD", "fgsm": "FGSM", "random": "random", "tdgia": "TDGIA"}

AGREEMENT = {
    "gcn": "with biases of 0; GRB adds them before the sum, A (X W + b)",
    "gin": "as it is; a bias that batch norm removes moves its running mean",
    "appnp": "with alpha 0; GRB's walk is lazy, here it restarts at the MLP's predictions",
    "gat": "with GRB's last layer, which swaps heads and width, and has no norm before it",
}
"""When ours is the same function as GRB's model."""

CHOICES = {
    ("speit", "own_logit"): ("-z_y", "GRB's default, `nll_loss` of logits; here `loss=own_logit`"),
    ("pgd", "own_logit"): ("-z_y", "the same"),
    ("fgsm", "own_logit"): ("-z_y", "the same"),
    ("speit", "cross_entropy"): ("cross-entropy", "the default here and of GRB's later code"),
    ("pgd", "cross_entropy"): ("cross-entropy", "the same"),
    ("fgsm", "cross_entropy"): ("cross-entropy", "the same"),
    ("random", ""): ("", "other draws; no gradient is taken"),
    ("tdgia", "random edges"): (
        "random edges",
        "GRB's default, which leaves out how TDGIA chooses targets; not here",
    ),
    ("tdgia", "grb"): (
        "edges by defect",
        "GRB 0.1.0 has no target left for a batch's later edges and stops; here, as in GRB's later "
        "code, they are left out (`variant=grb`)",
    ),
    ("tdgia", "strict"): ("edges by defect, all spent", "the default here; not in GRB"),
}
"""What the loss or the edges are called, and where a difference comes from."""

Rows = list[dict[str, Any]]


DRAWS = (
    "Both draw their edges at random and by other generators, so a pair is of one seed and not of "
    "the same edges. `-`: that program does not have it; `stops`: it raises an error."
)
DUPLICATES = (
    "GRB draws an edge again without looking whether it is there, and its models count the edge "
    "twice. `audit` tells (`told`), and `--merge-duplicates` counts it once, as the accuracies "
    "above do. `other breaches` are those that are left then. Seconds are of a busy core, for GAT "
    "with a conversion for DGL in both."
)


def as_markdown(record: Mapping[str, Any]) -> str:
    """The page of a record."""
    parts = [
        "# GRB 0.1.0 beside this project",
        _conclusion(record),
        _setting(record),
        "## Accuracy under attack (GRB's form / ours, %)",
        _attacks(record),
        DRAWS,
        "## The same edges",
        _same_edges(record["attacks"]),
        "## What was spent, per attacked graph",
        _spent(record["attacks"]),
        DUPLICATES,
        "## The same weights on the clean graph",
        _models(record["models"]),
        "## Files",
        _files(record["files"]),
    ]
    return "\n\n".join(parts) + "\n"


def _setting(record: Mapping[str, Any]) -> str:
    setting, budget = record["setting"], record["setting"]["budget"]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return (
        f"{setting['dataset']}, {record['targets']} easy test nodes, "
        f"{budget['max_injected_nodes']} injected nodes of "
        f"{budget['max_edges_per_injected_node']} edges, {setting['steps']} steps; models of each "
        f"kind: {setting['seeds']}, GRB's, trained for {setting['epochs']} epochs. GRB's model "
        f"judges every attacked graph. {versions}. `make grb-parity` measures it again."
    )


def _conclusion(record: Mapping[str, Any]) -> str:
    attacks = pd.DataFrame(record["attacks"])
    keys = ["model", "seed", "attack", "choice"]
    both = attacks.pivot_table(index=keys, columns="program", values="accuracy").dropna()
    difference = 100 * (both["ours"] - both["grb"])

    def of_speit(choice: str, program: str) -> str:
        head = {"model": "gcn", "attack": "speit", "choice": choice, "program": program}
        return _percent(attacks[(attacks[list(head)] == pd.Series(head)).all(axis=1)]["accuracy"])

    own, entropy = (
        " and ".join(of_speit(choice, program) for program in ("grb", "ours"))
        for choice in ("own_logit", "cross_entropy")
    )
    return (
        f"**SPEIT leaves GCN {own} % (GRB's form and ours) by the loss that is GRB 0.1.0's "
        f"default, and {entropy} % by the default here: the two differ in the loss.** Over all "
        f"{len(both)} pairs of one attack, loss, model and seed, ours leaves "
        f"{difference.mean():+.1f} points on average (median {difference.median():+.1f}, range "
        f"{difference.min():+.1f} to {difference.max():+.1f})."
    )


def _same_edges(attacks: Rows) -> str:
    runs = [
        run for run in attacks if "accuracy_of_ours_on_its_edges" in run and run["model"] != "gat"
    ]
    apart = [abs(run["accuracy_of_ours_on_its_edges"] - run["accuracy_as_listed"]) for run in runs]
    exact = sum(run["mean_feature_difference_of_ours"] == 0 for run in runs)
    furthest = max(run["mean_feature_difference_of_ours"] for run in runs)
    return (
        f"Ours on the edges that GRB drew, SPEIT and FGSM, {len(runs)} graphs: the accuracy is the "
        f"same for {sum(difference == 0 for difference in apart)}, and at most "
        f"{100 * max(apart):.1f} points apart; all features are equal to the bit for {exact}, and "
        f"their mean difference is at most {furthest:.1e}. GAT is left out: DGL takes an edge that "
        "is listed twice for two, GRB's normalisation for one."
    )


def _attacks(record: Mapping[str, Any]) -> str:
    attacks, models = pd.DataFrame(record["attacks"]), pd.DataFrame(record["models"])
    clean = {
        name: _percent(models[models["model"] == key]["grb_accuracy"])
        for key, name in NAMES.items()
    }
    rows = [{"attack": "none", "loss or edges": ""} | clean | {"difference": ""}]
    for (attack, choice), (called, why) in CHOICES.items():
        of_case = attacks[(attacks["attack"] == attack) & (attacks["choice"] == choice)]
        cells = {
            name: " / ".join(
                _cell(of_case[(of_case["model"] == key) & (of_case["program"] == program)])
                for program in ("grb", "ours")
            )
            for key, name in NAMES.items()
        }
        rows.append({"attack": ATTACKS[attack], "loss or edges": called} | cells)
        rows[-1]["difference"] = why
    return markdown_table(pd.DataFrame(rows), ["attack", "loss or edges", "difference"])


def _cell(runs: pd.DataFrame) -> str:
    if runs.empty:
        return "-"
    found = runs["accuracy"].dropna()
    return _percent(found) if len(found) == len(runs) else "stops"


def _percent(shares: pd.Series) -> str:
    return f"{100 * shares.mean():.1f}"


def _spent(attacks: Rows) -> str:
    rows = []
    for (attack, choice), (called, _) in CHOICES.items():
        for program, shown in (("grb", "GRB"), ("ours", "ours")):
            head = {"attack": attack, "choice": choice, "program": program}
            runs = [run for run in attacks if head.items() <= run.items() and "accuracy" in run]
            if not runs:
                continue
            merged = [
                100 * (run["accuracy"] - run["accuracy_as_listed"])
                for run in runs
                if "accuracy_as_listed" in run
            ]
            rows.append(
                {
                    "attack": ATTACKS[attack],
                    "loss or edges": called,
                    "program": shown,
                    "nodes": _range(run["nodes"] for run in runs),
                    "edges": _range(run["edges"] for run in runs),
                    "listed twice": _range(run.get("edges_listed_twice", 0) for run in runs),
                    "told": _codes(run.get("told_by_the_auditor", []) for run in runs),
                    "other breaches": _codes(run["violations"] for run in runs),
                    "merging changes (points)": f"{max(merged, key=abs):+.1f}" if merged else "-",
                    "s": f"{sum(run['seconds'] for run in runs) / len(runs):.1f}",
                }
            )
    left = ["attack", "loss or edges", "program", "told", "other breaches"]
    return markdown_table(pd.DataFrame(rows), left)


def _range(values: Any) -> str:
    found = sorted(values)
    return f"{found[0]}" if found[0] == found[-1] else f"{found[0]}..{found[-1]}"


def _codes(lists: Any) -> str:
    return ", ".join(sorted({code for codes in lists for code in codes})) or "-"


def _models(models: Rows) -> str:
    rows = []
    for key, name in NAMES.items():
        runs = [run for run in models if run["model"] == key]
        largest = {
            of: max(run[of] for run in runs)
            for of in (
                "largest_logit",
                "largest_difference",
                "largest_difference_where_they_agree",
                "largest_difference_of_the_adapter",
            )
        }
        accuracies = (
            f"{100 * sum(run[of] for run in runs) / len(runs):.1f}"
            for of in ("grb_accuracy", "ours_accuracy")
        )
        rows.append(
            {
                "model": name,
                "accuracy, GRB's / ours": " / ".join(accuracies),
                "largest logit": f"{largest['largest_logit']:.1f}",
                "largest difference": f"{largest['largest_difference']:.1e}",
                "where they agree": f"{largest['largest_difference_where_they_agree']:.1e}",
                "of `GRBModel`": f"{largest['largest_difference_of_the_adapter']:.1e}",
                "ours is the same function": AGREEMENT[key],
            }
        )
    return markdown_table(pd.DataFrame(rows), ["model", "ours is the same function"])


def _files(files: Mapping[str, Any]) -> str:
    same = {
        name: "the same" if files[f"same_{name}"] else "**not the same**"
        for name in ("edges", "labels", "targets")
    }
    parts = ", ".join(f"{name} {value}" for name, value in same.items())
    return (
        f"`data export`, read by GRB's `Dataset`: {parts}; normalised features differ by at most "
        f"{files['features_largest_difference']:.1e}. Every attacked graph above went through "
        "`adj.pkl` and `features.npy`."
    )
