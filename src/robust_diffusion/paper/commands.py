"""`robust-diffusion table`, `claims`, `report` and `figure`: views of the records."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from robust_diffusion.checks import check_choice
from robust_diffusion.commands.reading import (
    add_records_option,
    add_scale_option,
    check_options,
    read_chosen,
)
from robust_diffusion.config import CONFIG_DIR, PUBLISHED_RECORDS
from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.figures import FIGURES
from robust_diffusion.paper.tables import (
    build_table,
    datasets_of,
    frame_of,
    load_layout,
    table_numbers,
    to_frame,
)
from robust_diffusion.results.frame import narrow_frame
from robust_diffusion.results.show import Table, show
from robust_diffusion.system.files import write_whole

log = logging.getLogger(__name__)

FIDELITIES = tuple(sorted(path.stem for path in CONFIG_DIR.glob("fidelity/*.yaml")))
"""Variants of the paper: its equations, and the authors' public code."""

_FORMATS = ("markdown", "latex", "csv", "html")

_DATASETS = 4
"""Number of the table of datasets, which has no results."""

LAYER_DIAGRAM = Path(__file__).parent / "figures" / "gode_layer.svg"
"""Diagram of one layer of a graph neural PDE, fig. (gode_layer) of arXiv:2209.07754."""


def run_table_command(arguments: Sequence[str]) -> None:
    """Print a table, or write it to a file; nothing is run."""
    parser = _parser(
        "table",
        "Show a table of the paper as the records have it; nothing is run. "
        "experiment=table-<number> runs it; table 4, of the datasets, is measured on the files.",
    )
    add, default = parser.add_argument, "default: %(default)s"
    add("number", type=int, choices=sorted({_DATASETS, *table_numbers()}))
    add("--format", choices=_FORMATS, default="markdown", help=default)
    text = "data directory of table 4 (default: ROBUST_DIFFUSION_DATA, else data)"
    add("--data-dir", default=os.environ.get("ROBUST_DIFFUSION_DATA") or "data", help=text)
    add("--out", type=Path, help="file to write to (default: standard output)")
    chosen = parser.parse_args(arguments)
    layout = None if chosen.number == _DATASETS else load_layout(chosen.number)
    read = {"number", "format", "out"} | ({"data_dir"} if layout is None else set())
    read |= {"records", "scale", "fidelity"} if layout and layout.kind != "budgets" else set()
    check_options(parser, chosen, read, f"table {chosen.number}")
    if layout is None:
        text = _dataset_table(chosen.data_dir, chosen.format)
    else:
        variant = {"scale": chosen.scale, "fidelity": chosen.fidelity}
        reads = layout.kind != "budgets"
        frame = frame_of(layout, read_chosen(chosen.records) if reads else [])
        datasets = datasets_of(frame, layout, **variant)
        if reads and not datasets and not chosen.records:
            log.warning("%s: no runs of yours; this shows the published ones", layout.experiment)
            frame = frame_of(layout, read_chosen([PUBLISHED_RECORDS]))
            datasets = datasets_of(frame, layout, **variant)
        table = build_table(layout, frame, **variant, datasets=datasets or None)
        if chosen.format == "csv":
            text = to_frame(table).to_csv(index=False)
        else:
            text = show(table, chosen.format)
    if chosen.out is not None:
        text = f"{write_whole(chosen.out, text, option='--out')}\n"
    sys.stdout.write(text)


def _dataset_table(data_dir: str, form: str) -> str:
    from robust_diffusion.paper.agreement import published_beside_measured

    if form not in ("markdown", "csv"):
        raise ConfigError(f"--format {form}: not for table 4; use markdown or csv")
    frame = published_beside_measured(data_dir)
    if form == "csv":
        return frame.to_csv(index=False)
    title = "Table 4 · datasets (data), arXiv:2209.07754"
    return show(Table(title, frame, f"data directory {data_dir}"))


def run_claims_command(arguments: Sequence[str]) -> None:
    """Judge the paper's claims; the exit status is 0 for any verdict."""
    # Imported late, since a table needs no claims.
    from robust_diffusion.paper import claims

    parser = argparse.ArgumentParser(
        prog="robust-diffusion claims",
        description="Judge the paper's sentences on the records: by each variant, by the printed "
        "means and under the worst case of each model.",
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="claim", help="claims to judge (default: all)")
    add_records_option(parser)
    add("--claims", default=claims.CLAIMS, type=Path, help="file of claims")
    which = "variant of the paper that counts (default: each that was run)"
    add("--fidelity", choices=FIDELITIES, help=which)
    add("--format", choices=["markdown", "json"], default="markdown")
    chosen = parser.parse_args(arguments)
    declared = claims.load_claims(chosen.claims)
    for name in chosen.names:
        check_choice("claim", name, declared.claims)
    frame = narrow_frame(read_chosen(chosen.records), experiments=claims.experiments(declared))
    variants = [chosen.fidelity] if chosen.fidelity else claims.variants_of(frame)
    verdicts = claims.judge_all(declared, frame, variants, chosen.names)
    if chosen.format == "json":
        text = claims.to_json(verdicts, declared)
    else:
        text = claims.render_verdicts(verdicts, declared, variants)
    sys.stdout.write(text + "\n")


def run_report_command(arguments: Sequence[str]) -> None:
    """Write the report; nothing is run."""
    from robust_diffusion.paper.report import render_report

    parser = _parser(
        "report",
        "Write the tables of the paper that the records fill, with charts, claims, worst cases, "
        "comparisons and failed runs, as one HTML file that loads nothing; nothing is run.",
    )
    _add_path(parser, "--out", Path("outputs/report.html"), "file to write to")
    _add_path(parser, "--figures", FIGURES, "folder of figures drawn before")
    chosen = parser.parse_args(arguments)
    variant = {"scale": chosen.scale, "fidelity": chosen.fidelity}
    page = render_report(read_chosen(chosen.records), **variant, figures=chosen.figures)
    sys.stdout.write(f"{write_whole(chosen.out, page, option='--out')}\n")


def run_figure_command(arguments: Sequence[str]) -> None:
    """Draw one of the figures, and print the numbers behind it."""
    parser = argparse.ArgumentParser(
        prog="robust-diffusion figure",
        description="Draw a figure of the paper as PDF, PNG and SVG, with a JSON of what shaped "
        "it. Options are those of a run: dataset=cora fidelity=released seed=1 scale=smoke.",
    )
    add, names = parser.add_argument, ["flows", "lipschitz", "layer"]
    shown = (
        "flows: one panel per flow (flow=a,b,c); lipschitz: Beltrami without and with "
        "spectral normalisation; layer: the diagram of a layer"
    )
    add("name", choices=names, help=shown)
    add("overrides", nargs="*", default=[], metavar="key=value", help="options of a run")
    _add_path(parser, "--directory", FIGURES, "")
    which = "which layer (default: -2, the last hidden one)"
    add("--layer", type=int, help=which)
    add("--perplexity", type=float, default=30.0, help="of t-SNE (default: 30)")
    add("--max-nodes", type=int, default=3000, help="most nodes drawn (default: 3000)")
    by = (
        "what edges are drawn by: attention A(Z), or the weight with which the flow carries "
        "features (default: attention)"
    )
    add("--weights", choices=["attention", "carried"], default="attention", help=by)
    chosen = parser.parse_intermixed_args(arguments)
    if chosen.name != "layer":
        _draw(chosen)
        return
    check_options(parser, chosen, {"name", "directory"}, "figure layer")
    layer = chosen.directory / LAYER_DIAGRAM.name
    diagram = LAYER_DIAGRAM.read_text(encoding="utf-8")
    sys.stdout.write(f"{write_whole(layer, diagram, option='--directory')}\n")


def _draw(chosen: argparse.Namespace) -> None:
    # Imported late, since both need an extra.
    from robust_diffusion.paper.figures.build import Options, build_figure
    from robust_diffusion.paper.figures.draw import write_figure

    # Lightning's banners on devices and tips; its warnings stay.
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    options = Options(chosen.layer, chosen.perplexity, chosen.max_nodes, chosen.weights)
    built = build_figure(chosen.name, chosen.overrides, options)
    written = write_figure(built.figure, chosen.directory, built.stem, built.description)
    about = built.description
    smoke = about["scale"] == "smoke"
    graph = f"a drawn graph in place of {about['dataset']}" if smoke else about["dataset"]
    title = f"Figure ({about['label']}), arXiv:2209.07754; {graph}, fidelity={about['fidelity']}"
    title += f", seed {about['seed']}" + "; SMOKE RUN, says nothing about the paper" * smoke
    sys.stdout.write(f"{show(Table('', built.numbers, title))}\n")
    sys.stdout.write("".join(f"{path}\n" for path in written))


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options for the records that count, by file, scale and variant."""
    parser = argparse.ArgumentParser(prog=f"robust-diffusion {name}", description=description)
    add_records_option(parser)
    add_scale_option(parser)
    text = "variant of the paper (default: paper)"
    parser.add_argument("--fidelity", choices=FIDELITIES, default="paper", help=text)
    return parser


def _add_path(parser: argparse.ArgumentParser, option: str, default: Path, purpose: str) -> None:
    text = f"{purpose} (default: %(default)s)".strip()
    parser.add_argument(option, type=Path, default=default, help=text)
