import copy
import json
import os
import pickle
from dataclasses import asdict, replace
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from safetensors.torch import load_file
from torch_geometric.data import Data

from robust_diffusion.attacks import Budget, PerturbedGraph, PGDModification, spent_budget
from robust_diffusion.attacks.base import GivenUp
from robust_diffusion.data.sources import citation_like_graph
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.evaluation.evaluate_model import evaluate
from robust_diffusion.evaluation.flag_codes import DECLARED, remedy_of
from robust_diffusion.evaluation.flags import Flag, graph_hash
from robust_diffusion.evaluation.report import AttackReport, RobustnessReport, graph_file, wilson
from robust_diffusion.models import GCN
from robust_diffusion.system.artifact import Artifact, read_artifact, write_artifact
from robust_diffusion.system.tensor_hashes import tensor_hash
from tests.drawn import NODES, drawn_data
from tests.graphs import without_type_checks

DATA = drawn_data()
GRAPH = PerturbedGraph(
    torch.cat([DATA.x, DATA.x[:1]]),
    torch.cat([DATA.edge_index, torch.tensor([[NODES, 3], [3, NODES]])], 1),
    NODES,
    {"part": 0.25},
    "part",
    {"pgd": GivenUp("no gradient " * 100, "features"), "cover": GivenUp("not finite")},
    clean=DATA,
)
CONTROL = AttackReport(
    name="random",
    kind="injection",
    accuracy=0.75,
    is_control=True,
    made_on="",
    flags=[],
    spent=spent_budget(DATA, GRAPH),
    effort={"forwards": 7, "seconds": 0.5, "trace": [(1, 0.1, 0.5)]},
    reused=False,
    graph=GRAPH,
)
FLAG = Flag("budget_unspent", "spends 1 of 2 nodes")
TRANSFERRED = replace(
    CONTROL, name="pgd/GCN 2", accuracy=0.25, is_control=False, made_on="GCN 2", flags=[FLAG]
)
LIMITS = asdict(Budget(2, 3, (-1.0, 1.0)))
CLEAN = {key: DATA[key] for key in ("x", "edge_index", "y")} | {"target_nodes": torch.arange(40)}
REPORT = RobustnessReport(
    model="GCN",
    clean_accuracy=0.8,
    attacks=[CONTROL, TRANSFERRED],
    budget=Budget(2, 3, (-1.0, 1.0)),
    num_targets=40,
    threat="white_box",
    attacker_knows="labels",
    seed=1,
    dataset="cora",
    weights="0a",
    notes=["seen"],
    clean_graph=tensor_hash(*CLEAN.values()),
    clean=Data(**CLEAN),
)


@pytest.mark.parametrize("order", [1, -1])
def test_report_worst(order: int) -> None:
    flagged = replace(TRANSFERRED, accuracy=0.5)
    own, control = replace(flagged, name="pgd", flags=[]), replace(CONTROL, accuracy=0.5)
    for attacks, worst, is_bound in (
        ([control, flagged, own], own, True),
        ([control, flagged], flagged, False),
        ([control], control, False),
        ([replace(control, accuracy=0.0)], None, True),
    ):
        report = replace(REPORT, attacks=attacks[::order])
        assert worst in (None, report.worst)
        assert report.worst.is_bound == is_bound
        assert str(report).count("not a bound") == (not is_bound)


def test_report_robust_accuracy() -> None:
    better = [replace(row, accuracy=0.9) for row in REPORT.attacks]
    report = replace(REPORT, attacks=better)
    assert report.robust_accuracy == json.loads(report.to_json())["robust_accuracy"] == 0.8
    assert "80.00%" in repr(report)
    assert [row.accuracy for row in report.attacks] == [0.9, 0.9]  # as measured
    assert REPORT.robust_accuracy == 0.25


def test_report_formats() -> None:
    assert [name in REPORT for name in ("random", "tdgia")] == [True, False]
    assert len(REPORT) == len([*REPORT]) == 2
    odd = replace(REPORT, model="<b>", notes=["a < b"])
    for text in (str(odd), odd.to_markdown(), odd._repr_html_()):
        for shown in (
            "80.00",
            "75.00",
            "25.00",
            "budget_unspent",
            "worst: pgd/GCN 2, 25.00 %; not a bound, since it has a flag",
        ):
            assert shown in text
    assert "<b>" not in odd._repr_html_()
    assert "a &lt; b" in odd._repr_html_()


def test_report_attacks_that_may_be_weak() -> None:
    simple = replace(TRANSFERRED, graph=replace(GRAPH, part_accuracy={}))
    wrong = replace(simple, name="wrong", flags=[Flag("stochastic", "two passes differ")])
    text = str(replace(REPORT, attacks=[CONTROL, simple, wrong]))
    assert "\nmay be weak: pgd/GCN 2: budget_unspent" in text
    (row,) = [line for line in text.splitlines() if line.split()[0] == "wrong"]
    assert row.endswith("stochastic")


@pytest.mark.parametrize("code", DECLARED)
def test_report_prints_remedies(code: str) -> None:
    flagged = replace(TRANSFERRED, flags=[Flag(code, "what was seen")])
    report = replace(REPORT, attacks=[CONTROL, flagged])
    for text in (str(report), report.to_markdown(), unescape(report._repr_html_())):
        assert text.count(f"{code}: what was seen (to do: {remedy_of(code)})") == 1
    assert "`" not in remedy_of(code)


def test_report_worst_reasons() -> None:
    assert "since it has a flag" in str(REPORT)
    controls = str(replace(REPORT, attacks=[CONTROL]))
    assert "not a bound, since no attack does more harm than the control" in controls


def test_report_plot() -> None:
    axes = Figure().subplots()
    REPORT.plot(axes, mlp=0.6)
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([80, 75, 25])
    assert [bool(bar.get_hatch()) for bar in axes.patches] == [False, False, True]
    assert [text.get_text() for text in axes.texts] == ["80.0", "75.0", "25.0"]
    *intervals, mlp = axes.lines
    assert mlp.get_xdata()[0] == pytest.approx(60)
    for line, value in zip(intervals, (0.8, 0.75, 0.25), strict=True):
        low, high = 100 * np.array(wilson(value, 40))
        assert list(line.get_xdata()) == pytest.approx([low, high])
        assert low < 100 * value < high
    with pytest.raises(ConfigError, match=r"^mlp"):
        REPORT.plot(Figure().subplots(), mlp=60.67)


def test_report_graphs_share_features(tmp_path: Path) -> None:
    data = citation_like_graph(num_nodes=100, num_edges=200, num_features=500)
    attacks = ["pgd", "dice", PGDModification(num_steps=2)]
    budget = Budget(2, 3, node_ratio=0.1, edge_ratio=0.1)
    model, x = GCN(500, 4, out_channels=7), data.x.clone()
    run = partial(evaluate, model, budget=budget, attacks=attacks, progress=False)
    report = run(data.clone(), store=tmp_path / "cache")
    cached = run(data, store=tmp_path / "cache")
    data.x.zero_()  # a report does not change with the caller's graph
    for one in (report, cached, RobustnessReport.load(report.save(tmp_path / "saved"))):
        assert len(one) == 5
        for attack in one:
            graph = attack.graph
            moved = (graph.x[:100] != x).any(1)
            assert torch.equal(graph.x[:100][~moved], x[~moved])
            assert (int(moved.sum()), len(graph.x) - 100) == (
                attack.spent.changed_nodes,
                attack.spent.injected_nodes,
            )
            for same in (replace(graph, part="a"), copy.copy(graph), graph.to_data()):
                assert torch.equal(same.x, graph.x)
        assert len(pickle.dumps(one.attacks)) < 1.5 * x.nbytes


def test_report_save_and_load(tmp_path: Path) -> None:
    folder = REPORT.save(tmp_path / "report")
    names = sorted(path.name for path in folder.iterdir())
    graphs = [graph_file("pgd/GCN 2"), "graph-random.safetensors"]
    assert names == ["clean.safetensors", *graphs, "report.json"]
    record = json.loads((folder / "report.json").read_text())
    assert record == json.loads(REPORT.to_json())
    assert record["robust_accuracy"] == 0.25
    assert record["attacks"][1]["flags"] == [asdict(FLAG)]
    found = Data.from_dict(load_file(folder / "graph-random.safetensors"))
    expected = GRAPH.to_data()
    assert {*found.keys()} == {*expected.keys()}
    assert all(torch.equal(found[key], expected[key]) for key in expected.keys())  # noqa: SIM118
    with pytest.raises(ConfigError, match=r"report\.save "):
        REPORT.save(folder / "report.json")
    loaded = RobustnessReport.load(folder)
    assert (str(loaded), loaded.to_json()) == (str(REPORT), REPORT.to_json())
    assert torch.equal(loaded.graph.to_data().y, expected.y)
    assert all(row.graph.given_up == GRAPH.given_up for row in loaded)
    for row in record["attacks"]:
        del row["given_up"]  # as in reports of earlier versions
    (folder / "report.json").write_text(json.dumps(record))
    assert all(row.graph.given_up == {} for row in RobustnessReport.load(folder))


def test_report_save_over_another(tmp_path: Path) -> None:
    folder = REPORT.save(tmp_path)
    (folder / "graph-cached.safetensors").touch()
    replace(REPORT, attacks=[CONTROL]).save(folder)
    graphs = {path.name for path in folder.glob("graph-*")}
    assert graphs == {graph_file(CONTROL.name), "graph-cached.safetensors"}


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("clean_accuracy", [1.5, -3, float("nan"), True, 10**400, "1e+400", "0.5", None]),
        *(("model", ["x" * 1000, 3, "\ud800"]), ("threat", ["none", 10**400])),
        ("seed", [-1, 2**32, 10**400, 1.5, True]),
        *(("attacker_knows", ["none"]), ("num_targets", [41])),
        ("budget", [{"nodes": 3}, LIMITS | {"max_injected_nodes": "2"}, 3]),
        ("budget", [LIMITS | {"feature_limits": None}, LIMITS | {"max_injected_nodes": -1}]),
        *(("flags", [[{"code": "odd", "detail": ""}]]), ("attacks", [[], [3]])),
        *(("attacks.name", ["random", "clean", "\ud800"]), ("attacks.kind", ["poison"])),
        *(("attacks.accuracy", [-0.1, 10**400]), ("attacks.trace", [[[1, 0.1, 50]], []])),
        *(("attacks.part_accuracy", [{"part": 25}]), ("attacks.attacker_knows", [""])),
        ("attacks.given_up", [{"part": 3}, ["part"]]),
        *(("attacks.spent", [3]), ("attacks.seconds", ["long"])),
    ],
)
def test_report_load_bad_values(tmp_path: Path, key: str, values: list[object]) -> None:
    path = REPORT.save(tmp_path) / "report.json"
    record = json.loads(path.read_text())
    *of_attack, name = key.split(".")
    for value in values:
        (record["attacks"][1] if of_attack else record)[name] = value
        path.write_text(json.dumps(record).replace("1e+400", "1" * 5000))
        expected = f"{key.split('.')[0]}|Invalid JSON"
        with pytest.raises(DataError, match=rf"report\.json: [^\n]*({expected})[^\n]*$"):
            RobustnessReport.load(tmp_path)


TEXTS = ["{", "{}", "\x80", "[" * 100_000, " " * 10_000_001]


@pytest.mark.parametrize(
    "make",
    [
        *(partial(Path.write_bytes, data=text.encode("latin-1")) for text in TEXTS),
        *(lambda path: None, os.mkfifo, lambda path: path.symlink_to("/dev/zero")),
    ],
)
def test_report_load_bad_files(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "report.json")
    with pytest.raises(DataError, match=r"report\.json"):
        RobustnessReport.load(tmp_path)


def without_edges(folder: Path, name: str) -> None:
    whole = read_artifact(folder / name)
    write_artifact(folder / name, Artifact({"x": whole.tensors["x"]}, whole.metadata))


def exchanged(folder: Path, other: AttackReport) -> None:
    replace(REPORT, attacks=[other]).save(folder / "elsewhere")
    graph = folder / "elsewhere" / graph_file(other.name)
    graph.replace(folder / graph_file(CONTROL.name))


def other_clean(folder: Path, **changed: Any) -> None:
    clean = Data(**CLEAN | changed)
    fingerprint = graph_hash(clean, clean.target_nodes)
    number = len(clean.target_nodes)
    replace(REPORT, clean=clean, num_targets=number, clean_graph=fingerprint).save(folder)


def other_attacked(folder: Path, edge_index: Any) -> None:
    attacks = [replace(CONTROL, graph=replace(GRAPH, edge_index=edge_index))]
    replace(REPORT, attacks=attacks).save(folder)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        *(
            (partial(exchanged, other=other), "is not the graph of the report")
            for other in (
                TRANSFERRED,
                replace(CONTROL, accuracy=0.5),
                replace(CONTROL, graph=replace(GRAPH, x=GRAPH.x.flip(1))),
            )
        ),
        (replace(REPORT, clean_graph="other").save, "is not the clean graph"),
        *(
            (partial(without_edges, name=name), f"{name}: [^\\n]*$")
            for name in ("clean.safetensors", graph_file(CONTROL.name))
        ),
        *(
            (damage, r"^[^\n]*\.safetensors: (?!is not)[^\n]*$")
            for damage in (
                partial(other_clean, x=torch.ones(NODES)),
                partial(other_clean, y=torch.zeros(3).long()),
                partial(other_clean, edge_index=DATA.edge_index + NODES),
                partial(other_clean, target_nodes=torch.tensor([10**9])),
                partial(other_clean, target_nodes=torch.ones(1)),
                partial(other_attacked, edge_index=GRAPH.edge_index + 1),
                partial(other_attacked, edge_index=GRAPH.edge_index[0]),
            )
        ),
    ],
)
def test_report_load_bad_graphs(tmp_path: Path, damage: Any, problem: str) -> None:
    REPORT.save(tmp_path)
    with without_type_checks():
        damage(tmp_path)
        with pytest.raises(DataError, match=problem):
            RobustnessReport.load(tmp_path)
