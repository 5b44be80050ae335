"""Numbers that pages quote from records that still grow; those of finished studies are frozen."""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from robust_diffusion.config import PUBLISHED_RECORDS
from robust_diffusion.paper.tables import PRINTED
from robust_diffusion.records import read_records
from robust_diffusion.records.record import Record
from robust_diffusion.results.frame import asked_by, frame, named_by_settings
from robust_diffusion.results.worst_case import (
    PAIRED,
    recorded_on,
    worst_case_table,
    worst_cases,
)
from robust_diffusion.system.numbers import MINUS, Estimate, holm

ROOT = Path(__file__).parents[1]
EXPERIMENTS = ROOT / "experiments"
FLOWS = ["beltrami", "mean_curvature", "grand", "heat", "hang", "hang_quad", "uniform_modulation"]
FLOWS += ["grand_matched", "p_laplacian", "graphcon", "gread", "grand_pp", "blend", "acmp", "frond"]

VARIANTS = ["released", "paper"]

Quotes = Iterator[tuple[str, Iterable[Any]]]
"""Texts of a document with a `{}` for each number, and these numbers."""


@cache
def records() -> list[Record]:
    return read_records(PUBLISHED_RECORDS)


@cache
def runs() -> pd.DataFrame:
    return frame(records()).query("scale == 'full'")


@cache
def cells() -> pd.DataFrame:
    """The frame of all records, accuracies in %."""
    found = frame(records())
    return found.assign(accuracy=100 * found["accuracy"])


def rows(experiment: str, **equal: Any) -> pd.DataFrame:
    found = cells()[[experiment in asking for asking in cells()["experiments"]]]
    for column, value in equal.items():
        found = found[found[column] == value]
    return found


@cache
def models(experiment: str) -> pd.DataFrame:
    """Worst cases of an experiment, by every version of `auto`."""
    found = named_by_settings(recorded_on(runs(), {experiment}))
    return worst_cases(found, all_versions=True)


@cache
def lowest(experiment: str, nodes: int = 50, edges: int = 50) -> pd.DataFrame:
    """Rows of `worst_case_table` by model."""
    found = named_by_settings(recorded_on(runs(), {experiment}))
    table = worst_case_table(worst_cases(found)).query("variant == 'paper'")
    return table[(table["nodes"] == nodes) & (table["edges"] == edges)].set_index("model")


def pairs(first: str, second: str, nodes: int, version: int | None) -> pd.DataFrame:
    """Pairs of trained models that one version attacked, in %; all with `None`."""
    found = models("adversarial")
    found = found[(found["nodes"] == nodes) & (found["variant"] == "paper")]
    sides = [found[found["model"] == name] for name in (first, second)]
    both = sides[0].merge(sides[1], on=PAIRED, suffixes=("", "_other"))
    if version is not None:
        both = both[both["version"].eq(version) & both["version_other"].isin([0, version])]
    kinds = ["worst", "worst_other", "clean", "clean_other"]
    return both.assign(**{kind: 100 * both[kind] for kind in kinds})


@cache
def transfers(dataset: str, nodes: int) -> pd.DataFrame:
    """Rows of attacks transferred from a GCN, and of the clean graph; of `auto`, the newest."""
    experiments = {"table-1", "table-2", "table-3", "table-13", "successors"}
    found = cells()[[not experiments.isdisjoint(asked) for asked in cells()["experiments"]]]
    from_gcn = found["surrogates"].str.match("gcn(;|$)", na=False)
    found = found[from_gcn | (found["attack"] == "clean")]
    found = found[(found["dataset"] == dataset) & (found["nodes"] == nodes)]
    switched = [of.overrides.get("fidelity.edge_values") == "ones" for of in found["record"]]
    found = found[~pd.Series(switched, index=found.index)]  # `released` has edge ids
    keys = ["model", "variant", "attack"]
    found = found.drop_duplicates([*keys, "seed"])  # a run of several experiments
    newest = found.groupby(keys)["version"].transform("max")
    return found[found["version"].isna() | (found["version"] == newest)]


def transferred() -> pd.DataFrame:
    """Mean accuracy on Cora by model, variant and attack."""
    return transfers("cora", 50).pivot_table("accuracy", ["model", "variant"], "attack")


def by_seed(model: str, variant: str, attack: str, place: tuple[str, int]) -> "pd.Series[float]":
    """Accuracy by seed under a transferred attack, in %."""
    found = transfers(*place)
    found = found[(found["model"] == model) & (found["variant"] == variant)]
    found = found[(found["attack"] == attack) & found["seed"].isin(range(5))]
    return found.set_index("seed")["accuracy"].sort_index()


def over_matched(attack: str) -> Estimate:
    """Points of Beltrami above GRAND at a fifth of its speed, seed by seed."""
    models = ("beltrami", "grand_matched")
    sides = [by_seed(name, "paper", attack, ("cora", 50)) for name in models]
    return Estimate.of(list((sides[0] - sides[1]).round(9)))


def over_mlp(model: str, place: tuple[str, int]) -> Estimate:
    """Points of a model above an MLP under the worse of SPEIT and TDGIA, `released`."""
    both = [by_seed(model, "released", attack, place) for attack in ("speit", "tdgia")]
    line = rows("mlp", dataset=place[0], attack="clean").set_index("seed")["accuracy"]
    return Estimate.of(list((min(both, key=lambda of: of.mean()) - line).dropna().round(9)))


def mlp(dataset: str = "cora") -> float:
    return float(rows("mlp", dataset=dataset, attack="clean")["accuracy"].mean())


def above_mlp() -> float:
    """Points by which the best flow exceeds an MLP under the worse of SPEIT and TDGIA."""
    worse = transferred()[["speit", "tdgia"]].min(axis=1)
    return float(worse[worse.index.isin(FLOWS, level="model")].max() - mlp())


def thousands_of_runs() -> int:
    return len({run.run for run in records()}) // 1000 * 1000


def on_pubmed() -> dict[str, Estimate]:
    """Points of each model of the paper above an MLP on PubMed."""
    names = transfers("pubmed", 300)["model"].unique()
    return {name: over_mlp(name, ("pubmed", 300)) for name in names if name != "mlp"}


@cache
def agreement(variant: str) -> dict[str, str]:
    """The row of a variant in the published view."""
    page = (EXPERIMENTS / "results" / "agreement.md").read_text(encoding="utf-8")
    lines = [re.split(r" *\| *", line.strip("| ")) for line in page.splitlines() if "|" in line]
    return dict(zip(lines[0], next(line for line in lines if line[0] == variant), strict=True))


def reproduce() -> Quotes:
    paper, released = (agreement(of) for of in ("paper", "released"))
    counts = [*paper["All"].split(" of "), *released["All"].split(" of ")]
    yield "{} of {} with `paper` and {} of {} with `released`", counts
    yield (
        "{} and {} of the printed means of *other* models",
        [paper["Placebo"], released["Placebo"]],
    )
    splits = rows("splits", dataset="amazon_computer", model="grand", attack="speit")["accuracy"]
    seeds = transfers("amazon_computer", 100).query("model == 'grand' and variant == 'released'")
    seeds = seeds[seeds["attack"] == "speit"]["accuracy"]
    text = "keeps {:.1f} to {:.1f} % under SPEIT over five splits, ± {:.1f} over seeds"
    yield text, [splits.min(), splits.max(), seeds.std()]
    swept = [
        (f"Cora, `{variant}`", "cora", variant, (1, 2, 3, 6, 8, 9, 10)) for variant in VARIANTS
    ]
    swept += [("Amazon Computer, table 13, `paper`", "amazon_computer", "paper", (13,))]
    swept += [("Coauthor, table 13, `paper`", "coauthor", "paper", (13,))]
    for label, *cell, tables in swept:
        found = pd.concat([asked_by(runs(), f"table-{table}") for table in tables])
        own = (found["dataset"] == cell[0]) & (found["variant"] == cell[1])
        times = [record.time for record in found.loc[own, "record"]]
        minutes = (pd.Timestamp(max(times)) - pd.Timestamp(min(times))).total_seconds() / 60
        yield f"| {label} | {{:.0f}} |", [minutes]
    yield from citeseer()


def studies() -> Quotes:
    yield "More than {:,} recorded runs", [thousands_of_runs()]
    means = transferred()
    yield "no flow is more than {:.1f} points above an MLP", [above_mlp()]
    guard = means.loc[("beltrami_guard", "paper")]
    yield "also prunes edges ({:.1f} %)", [guard[["speit", "tdgia"]].min()]
    yield "GRAND keeps {:.1f} % under TDGIA", [means.loc[("grand", "released"), "tdgia"]]
    found = cells().query("dataset == 'cora' and model == 'hang' and variant == 'paper'")
    runs = found.loc[found["surrogates"] == "gcn; auto 11", "run"]
    found = found[found["run"].isin(runs)]
    hang = found.pivot_table("accuracy", "seed", "attack").loc[range(5)].mean()
    yield "HANG {:.1f} % under transferred `auto` (version 11)", [hang["auto"]]
    yield "where the MLP keeps {:.1f} %", [mlp()]
    both = pd.concat([lowest("worst-case"), lowest("worst-case-models")])
    both = both[~both.index.duplicated()].drop("mlp")
    above = both.loc[["beltrami_guard", "gpr_gnn", "elastic_gnn"]]
    assert list(above["seeds"]) == [3, 3, 3]
    assert not above["bound"].any()
    text = "BeltramiGuard keeps {:.1f}, GPRGNN {:.1f} and ElasticGNN {:.1f} % (three seeds each)"
    yield text, above["worst"]
    over = on_pubmed()
    yield "an MLP classifies {:.1f} % of them correctly", [mlp("pubmed")]
    names = ("beltrami", "mean_curvature", "beltrami_guard")
    text = (
        "Beltrami is at {:.1f} points from it (p {:.2g}), mean curvature at {:.1f} (p {:.2g}) and "
    )
    text += "BeltramiGuard at {:.1f} (p {:.2g})"
    near = [over.pop(name) for name in names]
    yield text.replace("{:.1f}", MINUS + "{:.1f}"), [x for e in near for x in (-e.effect, e.p(0))]
    assert all(estimate.effect < -5 for estimate in over.values())
    yield "lose {} points or more", [5]
    amazon = over_mlp("beltrami", ("amazon_computer", 100))
    yield "Beltrami is {:.1f} points above the MLP (p {:.2g})", [amazon.effect, amazon.p(0)]
    others = both.drop(above.index)["worst"]
    yield "no other model on these pages keeps more than {:.1f} %", [others.max()]
    found = lowest("successors").drop(["mlp", "hang", "hang_quad"])
    assert (found["worst"] < 1).all()
    both = lowest("successors").loc[["hang", "hang_quad"]]
    assert list(both["seeds"]) == [2, 3]
    assert not both["bound"].any()
    yield "keeps {:.1f} % (two seeds) and HANG-quad {:.1f} % (three seeds)", both["worst"]
    yield "takes HANG from {:.1f} to {:.1f} % (five seeds)", hang[["clean", "random"]]
    with (EXPERIMENTS / "successors.csv").open(encoding="utf-8") as file:
        reported = [of for of in csv.DictReader(file) if of["attack"] != "clean"]
    ends = [
        end([float(of["accuracy"]) for of in reported if of["model"] == model])
        for model in ("HANG", "HANG-quad")
        for end in (min, max)
    ]
    yield "report {:.1f} to {:.1f} % for HANG and {:.1f} to {:.1f} % for HANG-quad", ends
    clean, speit, tdgia = map(over_matched, ("clean", "speit", "tdgia"))
    yield (
        "is {:.1f} points less accurate on the clean targets (p {:.2g})",
        [clean.effect, clean.p(0)],
    )
    text = f"is at {MINUS}{{:.1f}} points from it under SPEIT (p {{:.2f}}) "
    text += "and at +{:.1f} under TDGIA (p {:.2f})"
    yield text, [-speit.effect, speit.p(0), tdgia.effect, tdgia.p(0)]
    yield from flips()
    yield from words()


def words() -> Quotes:
    found: dict[str, dict[int | None, Record]] = {}
    for record in read_records(EXPERIMENTS / "words" / "records.jsonl.gz"):
        found.setdefault(record.model_name, {})[record.budget.max_words] = record
    left = {
        model: {most: 100 * record.accuracy["auto"] for most, record in of.items()}
        for model, of in found.items()
        if model != "mlp"
    }
    yield "leave GCN at {:.1f} % and GAT at {:.1f} %", [left["gcn"][20], left["gat"][20]]
    pairs = [left[model][most] for model in ("gnn_guard", "beltrami") for most in (20, None)]
    yield "{:.1f} % instead of {:.1f}, and {:.1f} % instead of {:.1f}, all flagged", pairs
    flagged = [found[model][most] for model in ("gnn_guard", "beltrami") for most in (20, None)]
    assert all(record.flags.get("auto") for record in flagged)
    yield "An MLP keeps its {:.1f} %", [100 * found["mlp"][None].accuracy["clean"]]


def flips() -> Quotes:
    found = lowest("worst-case-modification", 0)
    order = ["rung", "elastic_gnn", "gpr_gnn", "gcn", "gcn_jaccard"]
    yield "an MLP keeps its {:.1f} %", [found.loc["mlp", "worst"]]
    text = "RUNG {:.1f}, ElasticGNN {:.1f}, GPRGNN {:.1f}, GCN {:.1f} and GCN-Jaccard {:.1f} %"
    yield text, found.loc[order, "worst"]
    chance = found.loc[order, "chance"]
    yield "flips drawn at random leave {:.1f} to {:.1f}", [chance.min(), chance.max()]


def learned(other: str) -> pd.DataFrame:
    """The trained `learned` beside another model within 5 nodes, three seeds by version 11."""
    both = pairs("learned, adversary", other, 5, 11)
    assert sorted(both["seed"]) == [2, 3, 4]
    return both.sort_values("seed")


def adversarial() -> Quotes:
    sides = ["worst_other", "worst"]
    usual = learned("learned")
    row = "| {:.1f} | {:.1f} | {}"
    yield f"| 5 × 50 | `flow=learned` {row} | 11 |", [*usual[sides].mean(), "2 to 4"]
    mlps = pairs("mlp, adversary", "mlp", 5, 11)
    assert len(mlps) == 5
    yield f"| 5 × 50 | MLP {row} | 11 |", [*mlps[sides].mean(), "0 to 4"]
    for nodes, model, name, usual_by, trained_by in (
        (5, "grand", "GRAND", 11, 11),
        (5, "beltrami", "Beltrami", 11, 11),
        (50, "grand", "GRAND", 11, 11),
        (50, "learned", "`flow=learned`", 11, 11),
        (50, "beltrami", "Beltrami", 11, 11),
    ):
        both = pairs(f"{model}, adversary", model, nodes, None)
        both = both[both["version_other"].eq(usual_by) & both["version"].eq(trained_by)]
        first, last = both["seed"].min(), both["seed"].max()
        assert sorted(both["seed"]) == list(range(first, last + 1))
        label = "; ".join(dict.fromkeys([str(usual_by), str(trained_by)]))
        text = f"| {nodes} × 50 | {name} {row} | {label} |"
        yield text, [*both[sides].mean(), f"{first} to {last}"]
    change = (usual["worst"] - usual["worst_other"]).mean()
    yield "raises `flow=learned` by {:.1f} points within 5 nodes", [change]
    both = learned("mlp")
    below = (both["worst_other"] - both["worst"]).round(9)
    assert (below > 0).all()
    found = Estimate.of(list(below))
    yield "injected node hurts, by {:.1f} to {:.1f} points", [below.min(), below.max()]
    text = "The mean of {:.1f} points (95 % interval {:.1f} to {:.1f})"
    yield text, [found.effect, *found.interval]
    yield "it is {:.1f} points more accurate", [(both["clean"] - both["clean_other"]).mean()]
    flagged = [usual["flags"].map(bool).sum()]
    for model, name, digits in (("beltrami", "Beltrami", 4), ("grand", "GRAND", 2)):
        both = pairs(f"{model}, adversary", model, 5, 11)
        flagged.append(both["flags"].map(bool).sum())
        found = Estimate.of([round(d, 9) for d in both["worst"] - both["worst_other"]])
        text = f"{name} gains {{:.1f}} points within 5 nodes ({{:.1f}} to {{:.1f}}, p {{}})"
        yield text, [found.effect, *found.interval, f"{found.p(0):.{digits}f}"]
    yield "{} runs of the trained `flow=learned`, {} of Beltrami and {} of GRAND", flagged
    small, large = (pairs("beltrami, adversary", "beltrami", nodes, 11) for nodes in (5, 50))
    both = small.merge(large, on="seed", suffixes=("_small", "_large"))
    more = int((both["worst_large"] > both["worst_small"]).sum())
    yield "on {} of {} seeds `auto` finds less within 50 nodes than within 5", [more, len(both)]


def trained_against_flips() -> Quotes:
    yield from adversarial()
    found, gains, values = models("adversarial-flips"), {}, {}
    names = {"gcn": "GCN", "gpr_gnn": "GPRGNN", "beltrami": "Beltrami", "learned": "`learned`"}
    for model, name in names.items():
        plain = found[found["model"] == model]
        own = found[found["model"] == f"{model}, flip adversary"]
        both = plain.merge(own, on=PAIRED, suffixes=("", "_trained"))
        kinds = ["clean", "worst", "clean_trained", "worst_trained"]
        values[name] = [len(both), *(100 * both[kind].mean() for kind in kinds)]
        gains[name] = Estimate.of(
            [round(d, 9) for d in 100 * (both["worst_trained"] - both["worst"])]
        )
    corrected = holm([gain.p(0) for gain in gains.values()])
    for (name, gain), p in zip(gains.items(), corrected, strict=True):
        row = f"| {name}" + " | {}" + " | {:.1f}" * 4 + " | {:.1f} ({:.1f} to {:.1f}) | {:.2f} |"
        yield row, [*values[name], gain.effect, *gain.interval, p]
    line = 100 * found[found["model"] == "mlp"]["worst"].mean()
    yield "| MLP | 3 | {:.1f} | {:.1f} | | | | |", [line, line]


def poisoning() -> Quotes:
    found = rows("poisoning")
    graphs = ["clean", "meta_05", "meta_10", "meta_20", "meta_25"]
    table = found.pivot_table("accuracy", ["dataset", "model"], "attack")[graphs]
    reported = pd.read_csv(EXPERIMENTS / "poisoning.csv").query("model == 'GCN'")
    of_others = reported.pivot_table("accuracy", "dataset", "rate")
    for name, without in (("cora", []), ("citeseer", [0.05, 0.2])):
        dataset = f"prognn_{name}"
        yield f"| {name.title()}" + " | {:.2f}" * 5 + " |", table.loc[(dataset, "gcn")]
        printed = of_others.loc[dataset].drop(without)
        text = "".join(" | {:.2f}" if rate in printed else " |" for rate in of_others.columns)
        yield f"| Pro-GNN's table 2{text} |", printed
    cora = table.loc["prognn_cora"]
    order = ["beltrami", "uniform_modulation", "hang", "mlp", "elastic_gnn", "rung", "grand"]
    text = "Beltrami keeps {:.1f} %, its control with a uniform **B** {:.1f}, HANG {:.1f}, an MLP "
    text += (
        "{:.1f}, ElasticGNN {:.1f}, RUNG {:.1f}, GRAND {:.1f}, GCN-Jaccard {:.1f} and a GCN {:.1f}."
    )
    yield text, cora.loc[[*order, "gcn_jaccard", "gcn"], "meta_25"]
    assert {*cora["meta_05"].nlargest(4).index} == {"elastic_gnn", "grand", "frond", "rung"}
    searched = cells()["run"][cells()["attack"] == "meta_grbcd"]
    searched = cells()[cells()["run"].isin(searched)].set_index(["model", "attack"])["accuracy"]
    of_file = rows("poisoning", seed=0, attack="meta_05", dataset="prognn_cora")
    of_file = of_file.set_index("model")["accuracy"]
    for name, model in (("GCN", "gcn"), ("Beltrami", "beltrami"), ("HANG", "hang")):
        clean, flips, meta = searched[model][["clean", "random_flip", "meta_grbcd"]]
        yield f"| {name}" + " | {:.2f}" * 4 + " |", [clean, flips, of_file[model], meta]


def citeseer() -> Quotes:
    with PRINTED.open(encoding="utf-8") as file:
        rows_of = [row for row in csv.DictReader(file) if row["table"] == "flows"]
    printed = {
        (row["dataset"], row["model"], row["attack"]): float(row["mean"])
        for row in rows_of
        if row["dataset"] in ("cora", "citeseer")
    }
    names = {"heat": "heat", "grand": "GRAND/BLEND", "mean_curvature": "mean curvature"}
    names["beltrami"] = "Beltrami"
    graphs = ("clean", "speit", "tdgia")
    means = {
        (dataset, model, graph): by_seed(model, "released", graph, (dataset, 50)).mean()
        for dataset, model, graph in product(("citeseer_words",), names, graphs)
    }
    for model, label in names.items():
        pairs = [
            x
            for g in graphs
            for x in (means["citeseer_words", model, g], printed["citeseer", model, g])
        ]
        yield f"| {label}" + " | {:.2f}, {:.2f}" * 3 + " |", pairs
    clean = {name: {m: means[name, m, "clean"] for m in names} for name, _, _ in means}
    words = clean["citeseer_words"]
    more = [words[m] - printed["citeseer", m, "clean"] for m in names]
    yield "Each flow of the table is {:.1f} to {:.1f} points more accurate", [min(more), max(more)]
    assert mlp("citeseer_words") > max(printed["citeseer", m, "clean"] for m in names)
    yield "An MLP reaches {:.2f} % on the words alone", [mlp("citeseer_words")]


DOCUMENTS: Mapping[str, tuple[Callable[[], Quotes], Sequence[str]]] = {
    "README.md": (lambda: iter(()), []),
    "experiments/README.md": (studies, ["below 1 %", "lose 5 points"]),
    "docs/paper/reproduce.md": (reproduce, ["(95 %)", "below 5 %"]),
    "docs/guides/train.md": (trained_against_flips, ["gain (95 % interval)"]),
    "docs/guides/poison.md": (poisoning, ["5 %", "10 %", "20 %", "25 %", "dropout 0.5, Adam 0.01"]),
}
"""The quotes of each document, and its settings and thresholds, which no record is behind."""

NUMBER = re.compile(r"\d[\d,]*\.\d+|\d+(?= (?:%|points))")


def plain(page: str) -> str:
    """Text without code blocks, the leaderboard, addresses and versions of software."""
    made = r"```.*?```|<!-- leaderboard -->.*<!-- /leaderboard -->"
    page = re.sub(made, "", page, flags=re.DOTALL)
    page = re.sub(r"\]\([^)]*\)|arXiv:[\d.]+|(?:Python|GRB|Optuna) [\d.]+(?: to [\d.]+)?", "", page)
    page = re.sub(r"`[^`\n]*`", lambda code: "" if NUMBER.search(code[0]) else code[0], page)
    return re.sub(r"\s+", " ", page)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_quoted_numbers_are_those_of_the_records(name: str) -> None:
    quotes, settings = DOCUMENTS[name]
    rest = plain((ROOT / name).read_text(encoding="utf-8"))
    for template, values in quotes():
        text = plain(template.format(*values))
        assert text in rest, f"{name}: the records say: {text}"
        rest = rest.replace(text, " ")
    for text in settings:
        rest = rest.replace(text, " ")
    unchecked = [rest[max(0, of.start() - 60) : of.end() + 20] for of in NUMBER.finditer(rest)]
    assert not unchecked, f"{name}: numbers that no record is behind"


AUTHORS = ["75.97 ± 1.45", "61.00 ± 2.17", "62.55 ± 1.57", "63.05 ± 1.73", "70.0 ± 1.9"]
AUTHORS += ["50.65 ± 8.41"]
"""What the authors' code gave; no record is behind these."""


def recorded_spreads() -> Iterator[pd.DataFrame]:
    """Accuracies in % by key, attack and seed: of all runs, of splits, and of the earlier runs."""
    found = cells().dropna(subset="accuracy")
    settings = [json.dumps(run.config.whole, sort_keys=True) for run in found["record"]]
    yield found.assign(key=settings)
    splits = rows("splits")
    key = splits["dataset"] + splits["model"]
    yield splits.assign(key=key, seed=splits.groupby([key, "attack"]).cumcount())
    earlier = pd.read_json(EXPERIMENTS / "rounding" / "records.jsonl.gz", lines=True)
    key = earlier["dataset"] + earlier["fidelity"] + earlier["setting"]
    yield pd.DataFrame(
        {
            "key": key,
            "attack": earlier["test_graph"],
            "seed": earlier["seed"],
            "accuracy": 100 * earlier["first"],
        }
    )


def test_every_spread_of_the_deviations_is_recorded_or_printed() -> None:
    with PRINTED.open(encoding="utf-8") as file:
        printed = [(of["mean"], of["std"]) for of in csv.DictReader(file) if of["std"]]
    known = {f"{float(mean):.2f} ± {float(std):.2f}" for mean, std in printed}
    for found, (first, end) in product(recorded_spreads(), [(0, 5), (5, 15), (0, 15)]):
        part = found[found["seed"].between(first, end - 1)].groupby(["key", "attack"])["accuracy"]
        of_part = part.agg(["mean", "std"]).dropna().round(9)
        known |= {f"{mean:.2f} ± {std:.2f}" for mean, std in of_part.itertuples(index=False)}
    pages = [ROOT / "docs" / "paper" / "deviations.md", EXPERIMENTS / "deviations.csv"]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert set(re.findall(r"\d+\.\d+ ± \d+\.\d+", text)) - known == set(AUTHORS)
