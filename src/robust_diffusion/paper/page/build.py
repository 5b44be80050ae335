"""The whole page: its content, laid out by the templates."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from robust_diffusion.evaluation.records import Record
from robust_diffusion.paper.agreement import agreement
from robust_diffusion.paper.page.charts.bars import LEGEND, flow_bars
from robust_diffusion.paper.page.charts.chart import ChartGroup
from robust_diffusion.paper.page.charts.curves import budget_curves
from robust_diffusion.paper.page.charts.period import period_curves
from robust_diffusion.paper.page.charts.scatter import evaluation_scatter, time_scatter
from robust_diffusion.paper.page.facts import gather
from robust_diffusion.paper.page.pictures import load_pictures
from robust_diffusion.paper.page.sections import cell_id, sections
from robust_diffusion.paper.page.switches import switches
from robust_diffusion.paper.page.verdicts import judge_all
from robust_diffusion.paper.paper_table import PaperTable, build_tables
from robust_diffusion.paper.render_html import ENVIRONMENT
from robust_diffusion.results.cells import RecordSet

TEMPLATES = Path(__file__).with_name("templates")


def render_page(
    records: Sequence[Record],
    *,
    scale: str = "full",
    fidelity: str = "paper",
    figures: str | Path | None = None,
    tables: Mapping[int, PaperTable] | None = None,
) -> str:
    """The report as one HTML file that loads nothing.

    The same records, in the order in which they were appended, and the same folder of figures give
    the same page, byte by byte. `tables` are those of `build_tables`, if they are at hand.
    """
    counted = RecordSet.of(records, scale=scale, fidelity=fidelity)
    if tables is None:
        tables = build_tables(counted)
    shown = sections(list(tables.values()))
    agreeing = agreement(list(tables.values()))
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    return ENVIRONMENT.get_template("page.html.jinja").render(
        style=(TEMPLATES / "page.css").read_text(encoding="utf-8"),
        script=script,
        # No other script runs, wherever it came from.
        script_hash=b64encode(sha256(script.encode()).digest()).decode("ascii"),
        scale=scale,
        fidelity=fidelity,
        facts=gather(records, scale=scale, fidelity=fidelity),
        sections=shown,
        anchors={section.number: section.id for section in shown},
        agreement=agreeing,
        links={
            (miss.table, miss.place): cell_id(tables[miss.table], miss.place)
            for miss in agreeing.outside
        },
        switches=switches(records, scale=scale),
        charts=_charts(tables, counted),
        # Smoke runs say nothing about the paper, so there is nothing to judge.
        verdicts=None if scale == "smoke" else judge_all(records, fidelity=fidelity),
        pictures=load_pictures(Path(figures)) if figures is not None else [],
    )


def _charts(tables: Mapping[int, PaperTable], counted: RecordSet) -> list[ChartGroup]:
    flows, timed = (3, 13, 14), (1, 3, 12, 13)
    return [
        ChartGroup(
            "chart-flows",
            "Robustness of the flows",
            "Accuracy on the clean graph and under each attack; whiskers are the standard "
            "deviation over seeds.",
            [panel for number in flows for panel in flow_bars(tables[number])],
            LEGEND,
            flows,
        ),
        ChartGroup(
            "chart-budget",
            "Accuracy against budget",
            "The more nodes are injected, the further right; whiskers are the standard "
            "deviation over seeds. All charts share one scale.",
            budget_curves(tables[9]),
            tables=(9,),
        ),
        ChartGroup(
            "chart-heat",
            "Small budgets",
            "Heat⁺ beside GAT and APPNP, from the clean graph to 50 injected nodes.",
            budget_curves(tables[11]),
            tables=(11,),
        ),
        ChartGroup(
            "chart-time",
            "Time against accuracy",
            "Upper left is best: robust and soon trained. Time is that of the run, on "
            "whatever machine it was; accuracy is under the attack that hurts most.",
            time_scatter([tables[number] for number in timed]),
            tables=timed,
        ),
        ChartGroup(
            "chart-nfe",
            "Evaluations against accuracy",
            "Cost of a solver in evaluations of the flow, the same on any machine.",
            evaluation_scatter(tables[5]),
            tables=(5,),
        ),
        ChartGroup(
            "chart-t-end",
            "Accuracy against robustness",
            "Each curve follows the end T of the integration period: less diffusion and "
            "more. The MLP sees no edge, so no injected node can hurt it. Upper right is best.",
            period_curves(counted),
        ),
    ]
