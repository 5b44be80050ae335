"""The report, a self-contained HTML page of the records, and the studies that it shows."""

import json
import logging
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from robust_diffusion.config import CONFIG_DIR, read_yaml
from robust_diffusion.paper import claims
from robust_diffusion.paper.agreement import BAND, agreement
from robust_diffusion.paper.figures import FIGURES
from robust_diffusion.paper.tables import PaperTable, build_tables
from robust_diffusion.records.record import Record
from robust_diffusion.records.records import by_experiment, by_sweep, merged
from robust_diffusion.results.comparison import compare_worst_cases
from robust_diffusion.results.frame import narrow_frame
from robust_diffusion.results.show import Table, show, template
from robust_diffusion.results.sweeps import accuracies, sweep_table
from robust_diffusion.results.worst_case import recorded_on, show_worst_cases

log = logging.getLogger(__name__)

_PAIRED = {
    "beltrami-uniform": ("worst-case", "beltrami", "uniform_modulation"),
    "adversarial-beltrami": ("adversarial", "beltrami, adversary", "beltrami"),
    "adversarial-grand": ("adversarial", "grand, adversary", "grand"),
    "adversarial-learned": ("adversarial", "learned, adversary", "learned"),
    "adversarial-learned-mlp": ("adversarial", "learned, adversary", "mlp"),
}
"""Views of two models, seed by seed: the experiment, the model or flow, and its control."""

FAILED = ["experiment", "scale", "fidelity", "dataset", "model", "flow", "seed", "error"]
DESCRIBED = ("caption", "dataset", "fidelity", "scale", "seed", "weights")
"""Keys of the description of a drawn figure that the page repeats."""

Sections = Iterator[tuple[str, Table]]
Pictures = Iterator[tuple[str, str, bytes]]  # name, caption and SVG


def render_report(
    records: Sequence[Record],
    *,
    scale: str = "full",
    fidelity: str = "paper",
    figures: Path = FIGURES,
) -> str:
    """Return the report as the text of an HTML file, without parts that would be empty.

    Args:
        records: Recorded runs, as `read_records` returns them.
        scale: Scale of the runs that count.
        fidelity: The variant of the paper's tables and charts; the other parts have all variants.
        figures: Folder of SVG files drawn by `figure`.
    """
    frame = narrow_frame(records)
    tables = build_tables(frame, scale=scale, fidelity=fidelity)
    measured = [table for table in tables.values() if table.cells["n"].any()]
    sections = list(own_sweeps(records, scale))
    sections += [*_claims(frame, fidelity), *_deviations(measured)] if scale == "full" else []
    sections += [*studies(records, frame, scale=scale), *_failed(records)]
    # An image from any source neither runs scripts nor loads anything.
    pictures = [
        (name, caption, f"data:image/svg+xml;base64,{b64encode(svg).decode('ascii')}")
        for name, caption, svg in [*_charts(tables, frame), *_drawn_before(figures)]
    ]
    return template("report").render(
        smoke=scale == "smoke",
        options=f"--scale {scale} --fidelity {fidelity}",
        provenance=_provenance(records),
        pictures=pictures,
        sections=[(name, _html(table)) for name, table in sections],
        tables=[(table.layout.name, _html(table)) for table in measured],
    )


def _html(table: Table) -> Markup:
    return Markup(show(table, "html"))  # noqa: S704 - escaped  # nosec B704


def _provenance(records: Sequence[Record]) -> dict[str, str]:
    """Return the number of runs, and their code, machines and packages."""
    latest = merged(records)

    def counts(*keys: str) -> str:
        tally = Counter(
            " ".join(str(getattr(r, key) or "not recorded") for key in keys) for r in latest
        )
        return ", ".join(f"{name} ({count})" for name, count in sorted(tally.items()))

    versions = [v for r in latest for v in r.versions.items()]
    failed = sum(bool(record.error) for record in latest)
    finished = len(latest) - failed
    return {
        "Runs": f"{finished} runs finished, {failed} failed; {counts('scale', 'fidelity')}",
        **{key.capitalize(): counts(key) for key in ("code", "revision", "processor")},
        "Packages": ", ".join(sorted({f"{name} {version}" for name, version in versions})),
        "Newest record": max((r.time for r in latest if r.time), default="-"),
    }


def _claims(frame: pd.DataFrame, fidelity: str) -> Sections:
    declared, variants = claims.load_claims(), sorted({fidelity, *claims.variants_of(frame)})
    verdicts = claims.judge_all(declared, frame, variants)
    if titles := claims.tested(verdicts):
        cells = claims.claims_frame(verdicts, titles)
        yield "Claims", Table("", cells, claims.legend(declared.alpha, variants[0]))


def _deviations(measured: Sequence[PaperTable]) -> Sections:
    if measured and len(entries := (stats := agreement(measured)).entries):
        caption = (
            f"{entries['within'].sum()} of {len(entries)} entries lie within {BAND:g} pooled "
            f"standard deviations of the printed numbers, as do {stats.placebo.sum()} of "
            f"{len(stats.placebo)} printed numbers of other models in their rows. These entries do "
            "not."
        )
        yield "Agreement with the paper", replace(stats.outside, caption=caption)


def _failed(records: Sequence[Record]) -> Sections:
    failed = [record for record in merged(records) if record.error]
    if failed:
        cells = pd.DataFrame([[getattr(r, key) for key in FAILED] for r in failed], columns=FAILED)
        yield "Failed runs", Table("", cells, "A sweep that asks again runs them again.")


def _charts(tables: Mapping[int, PaperTable], frame: pd.DataFrame) -> Pictures:
    try:
        from robust_diffusion.paper.figures.draw import draw_charts, render
    except ModuleNotFoundError as error:
        log.warning("no charts without %s; pip install 'robust-diffusion[report]'", error.name)
        return
    for name, caption, figure in draw_charts(tables, frame):
        yield name, caption, render(figure, "svg")


def _drawn_before(folder: Path) -> Pictures:
    for path in sorted(folder.glob("*.svg")):
        try:
            about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            facts = [f"{key}: {about[key]}" for key in DESCRIBED if key in about]
        except (OSError, ValueError, TypeError):  # the file may be missing, or hold other things
            facts = []
        yield path.stem, "; ".join(facts), path.read_bytes()


def shown_by(experiment: str) -> str | None:
    """Return what an experiment of `conf/` shows at last; `None` for a user's own."""
    paths = {path.stem: path for path in CONFIG_DIR.glob("experiment/*.yaml")}
    if experiment == "none" or experiment not in paths:
        return None
    callbacks = read_yaml(paths[experiment]).get("hydra", {}).get("callbacks", {})
    shows: str | list[str] = callbacks.get("results", {}).get("shows", "test")
    return shows if isinstance(shows, str) else shows[-1]


def own_sweeps(records: Sequence[Record], scale: str) -> Sections:
    """Yield a table per sweep and dataset of a user's own experiments, the newest sweep first."""
    known = {path.stem for path in CONFIG_DIR.glob("experiment/*.yaml")} - {"none"}
    own = {key: runs for key, runs in by_sweep(records, scale=scale).items() if key[0] not in known}
    for (experiment, sweep, dataset), runs in reversed(own.items()):
        names = dict.fromkeys([experiment, sweep, dataset])
        yield ", ".join(name for name in names if name not in ("", "none")), accuracies(runs)


def studies(records: Sequence[Record], frame: pd.DataFrame, *, scale: str = "full") -> Sections:
    """Yield the name and table of each experiment of `conf/` that has records of that scale.

    Args:
        records: Recorded runs.
        frame: Their frame.
        scale: `full` or `smoke`.
    """
    experiments, rows = by_experiment(records, scale=scale), frame[frame["scale"] == scale]
    shows = {name: shown_by(name) for name in sorted(experiments) if not name.startswith("table-")}
    for name, shown in shows.items():
        if shown is None:
            continue
        # Except `auto`, whose worst cases have a page of their own.
        together = shown == "worst_case" and name != "single-attacks"
        if together:
            table = show_worst_cases(recorded_on(rows, {name}))
        else:
            table = sweep_table(experiments[name], shown)  # type: ignore[arg-type]
        if len(table.cells):
            yield name, titled(table, f"experiment={name}")
    for name, (experiment, *models) in _PAIRED.items():
        table = compare_worst_cases(recorded_on(rows, {experiment}), *models)
        if len(table.cells):
            yield name, titled(table, f"experiment={experiment}")


def titled(table: Table, title: str) -> Table:
    """Return a table with a title above its caption."""
    return replace(table, title=title, caption=f"{table.caption}.")
