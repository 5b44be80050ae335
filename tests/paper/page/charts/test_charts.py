import re
from xml.etree.ElementTree import Element, fromstring

import pytest

from robust_diffusion.paper.layout import load_layout
from robust_diffusion.paper.page.charts.bars import flow_bars
from robust_diffusion.paper.page.charts.chart import BASE, TOP, ChartGroup
from robust_diffusion.paper.page.charts.curves import budget_curves
from robust_diffusion.paper.page.charts.period import period_curves
from robust_diffusion.paper.page.charts.scatter import evaluation_scatter, time_scatter
from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.results.cells import RecordSet
from tests.paper.page.study import study
from tests.paper.records import Record, finished, seeds
from tests.paper.tables import build_table

RECORDS = study(seeds=2, trouble=False)


def table(number: int, records: list[Record] = RECORDS) -> PaperTable:
    return build_table(load_layout(number), records)


def parse(svg: str | None) -> Element:
    assert svg is not None
    return fromstring(svg)


def test_bars_are_as_high_as_the_entries_say() -> None:
    (cora, *rest) = flow_bars(table(3, seeds([0.5, 0.7], flow="heat")))
    bars = parse(cora.svg).findall(".//rect")
    # 60 % of the height between the axis and 100 %.
    assert [float(bar.get("height") or 0) for bar in bars] == [0.6 * (BASE - TOP)] * 3
    assert "GRAND/BLEND clean" in cora.note
    assert [panel.svg for panel in rest] == [None, None]


def test_a_dataset_of_two_tables_is_distinguished() -> None:
    panels = [panel for number in (3, 13, 14) for panel in flow_bars(table(number, []))]
    notes = ChartGroup("id", "title", "about", panels).notes
    assert [note for note in notes if "Citeseer" in note] == [
        "Citeseer, table 3: not run",
        "Citeseer, table 14: not run",
    ]
    assert len(set(notes)) == len(notes) == 7


def test_only_full_runs_show_published_values() -> None:
    assert flow_bars(table(3))[0].svg is not None
    assert (flow_bars(table(3))[0].svg or "").count("published-tick") == 12
    smoke = [record | {"scale": "smoke"} for record in RECORDS]
    thin = build_table(load_layout(3), smoke, scale="smoke")
    assert "published-tick" not in (flow_bars(thin)[0].svg or "")


@pytest.mark.parametrize(("number", "panels", "lines"), [(9, 6, 8), (11, 1, 3)])
def test_there_is_a_curve_per_model(number: int, panels: int, lines: int) -> None:
    charts = budget_curves(table(number))
    assert len(charts) == panels
    for chart in charts:
        root = parse(chart.svg)
        assert len(root.findall(".//polyline")) == lines
        labels = [text for text in root.findall(".//text") if text.get("class") == "label"]
        assert len(labels) == lines


def test_a_curve_goes_down_where_accuracy_does() -> None:
    records = [
        finished(
            0.8,
            0.8 - nodes / 500,
            experiment="table-9",
            attacks=("speit", "tdgia"),
            settings={
                "budget": {"max_injected_nodes": nodes, "max_edges_per_injected_node": nodes}
            },
        )
        for nodes in (200, 50, 150)
    ]
    chart = budget_curves(table(9, records))[0]
    (line,) = parse(chart.svg).findall(".//polyline")
    points = [tuple(map(float, pair.split(","))) for pair in (line.get("points") or "").split()]
    assert len(points) == 3
    assert points == sorted(points)
    assert [y for _, y in points] == sorted(y for _, y in points)
    assert "RobustGCN" in chart.note


def test_points_are_train_time_and_worst_accuracy() -> None:
    records = [
        record | {"seconds": {"train": time}}
        for record, time in zip(
            [finished(0.8, {"speit": 0.4, "tdgia": 0.6}, seed=s) for s in range(2)],
            (10.0, 30.0),
            strict=True,
        )
    ]
    (cora, *_) = time_scatter([table(3, records)])
    assert "Beltrami: 20, 40.0 %" in (cora.svg or "")
    assert "3 not run" in cora.note


def test_without_a_time_there_is_no_point() -> None:
    panels = time_scatter([table(3, seeds([0.5, 0.6]))])
    assert [panel.svg for panel in panels] == [None] * 3


def test_solvers_are_told_apart_by_their_evaluations() -> None:
    (chart,) = evaluation_scatter(table(5))
    named = [text.text for text in parse(chart.svg).findall(".//text") if text.get("class")]
    for name in ("Implicit Adam τ=1", "Explicit Adam τ=10", "Dopri5"):
        assert name in named


def test_a_network_without_a_period_is_a_point() -> None:
    options = {"model": "mlp", "flow": None, "experiment": "t-end", "attacks": ("speit",)}
    mlp = [finished(0.60, 0.59, seed=seed, **options) for seed in (0, 1)]
    (chart,) = period_curves(RecordSet.of([*RECORDS, *mlp], fidelity="paper"))
    assert "MLP: 60.0 / 59.0" in chart.svg


def test_a_point_counts_each_seed_once() -> None:
    short = {"training": {"max_epochs": 5}}
    options = {"experiment": "t-end", "attacks": ("speit",)}
    look = [finished(0.1, 0.1, seed=s, settings=short, **options) for s in range(3)]
    runs = [finished(0.8, 0.6, seed=s, **options) for s in (0, 0, 1)]
    guard = [finished(0.5, 0.4, model="beltrami_guard", **options)]
    (chart,) = period_curves(RecordSet.of([*look, *runs, *guard], fidelity="paper"))
    assert "Beltrami: 80.0 / 60.0" in chart.svg
    assert "BeltramiGuard: 50.0 / 40.0" in chart.svg
    assert "seeds: 2" in chart.svg


def test_the_period_runs_from_short_to_long() -> None:
    (chart,) = period_curves(RecordSet.of(RECORDS, fidelity="paper"))
    assert chart.title == "Cora, SPEIT"
    described = re.findall(r"T=([\d.]+) ", chart.svg or "")
    assert [float(t) for t in described] == [0.1, 0.3, 1, 2] * 2
    assert period_curves(RecordSet.of(RECORDS, fidelity="released")) == []
