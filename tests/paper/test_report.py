import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from robust_diffusion.paper.figures.draw import draw_charts
from robust_diffusion.paper.report import own_sweeps, render_report, studies
from robust_diffusion.paper.tables import build_tables
from robust_diffusion.records.record import Request
from robust_diffusion.results.frame import narrow_frame
from tests.paper.records import Record, failed, finished, seeds, timed

HOSTILE = '<script>alert("x")</script><img src="https://example.org/a.png"> \u2028 & \'"'
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


def headings(page: str) -> list[str]:
    return re.findall("<h2[^>]*>(.*?)</h2>", page)


def worst_cases() -> Iterator[Record]:
    for model, reached in (("mlp", 0.6), ("gcn", 0.1)):
        common = {"experiment": "worst-case", "model": model, "flow": None, "split": "a"}
        for seed in (0, 1):
            yield finished(0.7, reached, seed=seed, attacks=("auto",), threat="white_box", **common)


def study() -> list[Record]:
    records = [*seeds([0.5, 0.6, 0.61]), *worst_cases()]
    for flow in ("heat", "grand", "mean_curvature"):
        records += seeds([0.3, 0.4, 0.41], flow=flow)
    for steps in ("1", "2"):
        overrides = {"fidelity.num_steps": steps} if steps == "2" else {}
        options = {"experiment": "readings", "overrides": overrides, "attacks": ()}
        records += [finished(0.7, seed=s, run=f"{steps} {s}", **options) for s in (0, 1)]
    return [
        *records,
        finished(
            experiment="mine",
            versions={"torch": "2.13"},
            flow="my_flow",
            dataset="my_graph",
            model="my_model",
        ),
        failed(HOSTILE, flow="grand", dataset=HOSTILE, experiment="table-3", code="older<b>"),
        failed("no such file", "DataError", experiment="mine", flow=HOSTILE),
    ]


@pytest.mark.slow
def test_the_page_has_what_the_records_fill_and_loads_nothing(tmp_path: Path) -> None:
    (tmp_path / "flows.svg").write_text(SVG)
    (tmp_path / "flows.json").write_text('{"caption": "A <b> & t-SNE.", "scale": "smoke"}')
    (tmp_path / "broken.svg").write_text(SVG)
    (tmp_path / "broken.json").write_text("[1")
    page = render_report(study(), figures=tmp_path)
    expected = ["mine, cora", "mine, my_graph", "Claims", "Agreement with the paper"]
    expected += ["readings", "worst-case"]
    assert headings(page) == [*expected, "Failed runs", "Tables of arXiv:2209.07754"]
    opened, closed = (Counter(re.findall(tag, page)) for tag in (r"<(\w+)", r"</(\w+)"))
    assert (opened - closed).keys() == {"meta", "img"}  # which have no end
    assert not {"script", "link", "iframe", "object"} & opened.keys()
    assert re.findall(r"(?:onerror|onload)=|url\(", page) == []
    linked = re.findall(r'href="#(\w+)"', page)  # the contents
    assert len(linked) == page.count("href=")
    assert set(linked) == set(re.findall(r' id="(\w+)"', page))
    images = re.findall(r'<img src="data:image/svg\+xml;base64,[^"]*" alt="(.*?)"', page)
    assert images == ["models", "broken", "flows"]
    assert opened["img"] == 3
    text = unescape(page)
    cells = (f"<td>{HOSTILE}</td>", "<td>no such file</td>", "<td>gcn</td><td>2</td>", "my_model")
    told = ("older<b>", "A <b> & t-SNE.; scale: smoke", "torch 2.13")
    counts = "21 runs finished, 2 failed; full paper (23)"
    assert [part for part in (*cells, *told, counts) if part not in text] == []


def test_of_a_smoke_run_nothing_is_said_of_the_paper() -> None:
    records = [record | {"scale": "smoke"} for record in study()]
    page = render_report(records, scale="smoke")
    assert "Claims" not in headings(page)
    assert "Smoke run" in page
    assert "Tables of arXiv:2209.07754" in headings(page)


@pytest.mark.parametrize("name", ["mlp", "readings", "tune-check", "grand-rate", "worst-case"])
def test_an_experiment_that_has_only_begun_is_shown_as_far_as_it_went(name: str) -> None:
    options = {"experiment": name, "attacks": ("auto",), "threat": "white_box", "split": "a"}
    broken, whole = failed(seed=1, **options), finished(**options)
    for records in ([broken], [whole], [whole, broken], [finished(attacks=(), experiment=name)]):
        for _, table in studies(records, narrow_frame(records)):
            assert table.title


def test_each_sweep_of_ones_own_has_a_table_per_dataset_the_newest_first() -> None:
    def asked(sweep: str, time: str, **options: Any) -> Record:
        run = finished(experiment="none", attacks=(), **options)
        run.set_requests([Request("none", sweep=sweep, time=time)])
        return run

    records = [asked("old", "1", dataset=dataset) for dataset in ("cora", "pubmed")]
    records += [asked("new", "2", flow=flow) for flow in ("heat", "grand")]
    found = dict(own_sweeps(records, "full"))
    assert list(found) == ["new, cora", "old, pubmed", "old, cora"]
    assert list(found["new, cora"].cells["flow"]) == ["heat", "grand"]


def charts(records: list[Record]) -> dict[str, Figure]:
    rows = narrow_frame(records)
    return {name: figure for name, _, figure in draw_charts(build_tables(rows), rows)}


def test_charts_show_the_means_of_their_tables() -> None:
    records = [
        *seeds([0.5, 0.7]),
        *(
            finished(0.8, 0.1 * t_end, experiment="t-end", settings={"flow": {"t_end": t_end}})
            for t_end in (1.0, 0.5)
        ),
        finished(0.6, experiment="t-end", model="mlp", flow=None),
        *(
            finished(attacked=0.4, experiment="table-9", model="gat", budget=(nodes, nodes))
            for nodes in (100, 50)
        ),
        finished(experiment="table-5", dataset="citeseer", nfe=24),
        # A step can be timed in any experiment; there it is no result.
        *(timed(experiment=name, dataset="cora") for name in ("t-end", "table-3", "table-5")),
    ]
    drawn = charts(records)
    assert list(drawn) == ["models", "injections", "solvers", "t-end"]

    def lines(name: str, panel: int = 0) -> list[tuple[list[float], list[float]]]:
        found = (line for line in drawn[name].axes[panel].lines if len(line.get_label()) > 0)
        return [(list(line.get_xdata()), list(line.get_ydata())) for line in found]

    assert lines("models")[0][0] == pytest.approx([60.0])
    assert ([50.0, 100.0], pytest.approx([40.0, 40.0])) in lines("injections")
    assert lines("solvers")[0] == ([24.0], pytest.approx([75.0]))
    mlp, flow = lines("t-end")
    assert [mlp[0], flow[0]] == [[0.5, 1.0]] * 2
    assert [mlp[1], flow[1]] == [pytest.approx([60.0] * 2), pytest.approx([80.0] * 2)]
    assert lines("t-end", 1)[1][1] == pytest.approx([5.0, 10.0])
    assert "T" in drawn["t-end"].get_supxlabel()
    assert charts([]) == {}
