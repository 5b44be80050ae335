"""A paper's table as a fragment of HTML, and the templates of all pages."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.render_markdown import grid
from robust_diffusion.paper.wording import Notes

MARKS = {1: Markup("<strong>{}</strong>"), 2: Markup("<em>{}</em>")}

ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,  # what records say is foreign text
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def render_html(table: PaperTable) -> str:
    """A `<figure>`: the caption with remarks, a table per grid, and the notes."""
    notes = Notes(table)
    grids = [grid(part, notes, MARKS) for part in table.parts]
    template = ENVIRONMENT.get_template("table.html.jinja")
    return template.render(table=table, grids=grids, notes=notes.texts)
