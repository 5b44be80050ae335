"""The whole page: its content, laid out by the templates."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from robust_diffusion.evaluation.records import Record
from robust_diffusion.paper.agreement import agreement
from robust_diffusion.paper.layout import table_name
from robust_diffusion.paper.page.charts.bars import LEGEND, flow_bars
from robust_diffusion.paper.page.charts.chart import ChartGroup
from robust_diffusion.paper.page.charts.curves import budget_curves
from robust_diffusion.paper.page.charts.period import period_curves
from robust_diffusion.paper.page.charts.scatter import evaluation_scatter, time_scatter
from robust_diffusion.paper.page.conclusions import conclude
from robust_diffusion.paper.page.facts import gather
from robust_diffusion.paper.page.pictures import load_pictures
from robust_diffusion.paper.page.sections import cell_id, section
from robust_diffusion.paper.page.switches import switches
from robust_diffusion.paper.page.verdicts import TESTED, judge_all
from robust_diffusion.paper.page.worst import worst_case_cells, worst_case_tables
from robust_diffusion.paper.paper_table import PaperTable, build_tables
from robust_diffusion.paper.render_html import ENVIRONMENT
from robust_diffusion.results.cells import RecordSet

TEMPLATES = Path(__file__).with_name("templates")

PARTS = {
    "conclusions": "Conclusions",
    "charts": "Charts",
    "claims": "Claims",
    "misses": "Deviations",
    "worst_cases": "Worst cases",
    "switches": "Variants",
    "figures": "Figures",
    "all_claims": "All claims",
    "tables": "Tables",
    "records": "Records",
}
"""Parts of the page in order: template, which is also the variable that it shows, and name."""


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
    the same page, byte by byte. Parts and tables that nothing fills are left out. `tables` are
    those of `build_tables`, if they are at hand.
    """
    counted = RecordSet.of(records, scale=scale, fidelity=fidelity)
    if tables is None:
        tables = build_tables(counted)
    sections = {number: section(table) for number, table in tables.items()}
    charts = _charts(tables, counted)
    content: dict[str, Any] = {
        **_against_the_paper(records, tables, counted),
        "charts": [group for group in charts if group.drawn],
        "switches": switches(records, scale=scale),
        "figures": load_pictures(Path(figures)) if figures is not None else [],
        "tables": [found for found in sections.values() if found.filled],
        "records": gather(records, scale=scale, fidelity=fidelity),
    }
    parts = {part: name for part, name in PARTS.items() if content[part]}
    links: dict[int | str, tuple[str, str]] = {
        **{part: (part.replace("_", "-"), name) for part, name in parts.items()},
        **{number: (found.id, found.name) for number, found in sections.items() if found.filled},
    }
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    return ENVIRONMENT.get_template("page.html.jinja").render(
        **content,
        parts=parts,
        links=links,
        not_drawn=[group.title for group in charts if not group.drawn],
        not_run=[found.name for found in sections.values() if not found.filled],
        table_name=table_name,
        cell_id=lambda miss: cell_id(tables[miss.table], miss.place),
        style=(TEMPLATES / "page.css").read_text(encoding="utf-8"),
        script=script,
        # No other script runs, wherever it came from.
        script_hash=b64encode(sha256(script.encode()).digest()).decode("ascii"),
        scale=scale,
        fidelity=fidelity,
    )


def _against_the_paper(
    records: Sequence[Record], tables: Mapping[int, PaperTable], counted: RecordSet
) -> dict[str, Any]:
    """Parts that say something about the paper; smoke runs have none."""
    found: dict[str, Any] = dict.fromkeys(
        ["conclusions", "claims", "misses", "worst_cases", "all_claims"]
    )
    if counted.scale == "smoke":
        return found
    fidelity, worst = counted.fidelity or "paper", worst_case_cells(counted)
    verdicts, agreeing = judge_all(records, fidelity=fidelity), agreement(list(tables.values()))
    said = conclude(records, tables, worst, agreeing, verdicts, fidelity)
    found |= {"conclusions": said, "worst_cases": worst_case_tables(worst)}
    if any(verdicts["groups"][group] for group in TESTED):
        found |= {"claims": verdicts, "all_claims": verdicts}
    if agreeing.within or agreeing.outside:
        found["misses"] = agreeing
    return found


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
