"""The page as a whole: everything that it shows is gathered here, the templates lay it out."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from robust_diffusion.evaluation.records import Record
from robust_diffusion.paper.agreement import agreement
from robust_diffusion.paper.page.charts.bars import LEGEND, flow_bars
from robust_diffusion.paper.page.charts.curves import budget_curves
from robust_diffusion.paper.page.charts.frame import ChartGroup
from robust_diffusion.paper.page.charts.period import period_curves
from robust_diffusion.paper.page.charts.scatter import evaluation_scatter, time_scatter
from robust_diffusion.paper.page.embed import cell_id
from robust_diffusion.paper.page.facts import gather
from robust_diffusion.paper.page.overview import sections
from robust_diffusion.paper.page.pictures import load_pictures
from robust_diffusion.paper.page.switches import switches
from robust_diffusion.paper.page.verdicts import judge_all
from robust_diffusion.paper.paper_table import PaperTable, build_tables
from robust_diffusion.paper.render_html import figure_id

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

    The same records and figures are the same page, to the letter.

    Args:
        records: Of any experiments, in the order in which they were appended.
        scale: Which runs count: full or smoke.
        fidelity: Which reading of the paper counts: paper or released.
        figures: Folder of figures that were drawn before.
        tables: What `build_tables` makes of the same, if that is at hand.
    """
    if tables is None:
        tables = build_tables(records, scale=scale, fidelity=fidelity)
    shown = sections(list(tables.values()))
    agreeing = agreement(list(tables.values()))
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        # What records say is foreign text, wherever it ends up.
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    return environment.get_template("page.html.jinja").render(
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
            (miss.table, miss.place): cell_id(figure_id(tables[miss.table]), miss.place)
            for miss in agreeing.outside
        },
        switches=switches(records, scale=scale),
        charts=_charts(tables, records, scale, fidelity),
        # Smoke runs say nothing about the paper, so there is nothing to judge.
        verdicts=None if scale == "smoke" else judge_all(records, fidelity=fidelity),
        pictures=load_pictures(Path(figures)) if figures is not None else [],
    )


def _charts(
    tables: Mapping[int, PaperTable], records: Sequence[Record], scale: str, fidelity: str
) -> list[ChartGroup]:
    return [
        ChartGroup(
            id="chart-flows",
            title="Robustness of the flows",
            about="Accuracy on the clean graph and under each attack; whiskers are the standard "
            "deviation over seeds.",
            panels=tuple(panel for n in (3, 13, 14) for panel in flow_bars(tables[n])),
            legend=LEGEND,
            tables=(3, 13, 14),
        ),
        ChartGroup(
            id="chart-budget",
            title="Accuracy against budget",
            about="The more nodes are injected, the further right; whiskers are the standard "
            "deviation over seeds. All charts share one scale.",
            panels=tuple(budget_curves(tables[9])),
            tables=(9,),
        ),
        ChartGroup(
            id="chart-heat",
            title="Small budgets",
            about="Heat⁺ beside GAT and APPNP, from the clean graph to 50 injected nodes.",
            panels=tuple(budget_curves(tables[11])),
            tables=(11,),
        ),
        ChartGroup(
            id="chart-time",
            title="Time against accuracy",
            about="Upper left is best: robust and soon trained. Time is that of the run, on "
            "whatever machine it was; accuracy is under the attack that hurts most.",
            panels=tuple(time_scatter([tables[n] for n in (1, 3, 12, 13)])),
            tables=(1, 3, 12, 13),
        ),
        ChartGroup(
            id="chart-nfe",
            title="Evaluations against accuracy",
            about="What a solver costs in evaluations of the flow, on any machine the same.",
            panels=tuple(evaluation_scatter(tables[5])),
            tables=(5,),
        ),
        ChartGroup(
            id="chart-t-end",
            title="Accuracy against robustness",
            about="Each curve follows the end T of the integration period: less diffusion and "
            "more. The MLP sees no edge, so no injected node can hurt it. Upper right is best.",
            panels=tuple(period_curves(records, scale=scale, fidelity=fidelity)),
        ),
    ]
