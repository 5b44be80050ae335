"""A table's fragment, made ready for a page: cells that can be linked to, room to scroll."""

from html import escape

from robust_diffusion.paper.paper_table import PaperTable
from robust_diffusion.paper.render_html import figure_id, render_html


def cell_id(table: str, place: int) -> str:
    """Id of a cell.

    Args:
        table: Id of its table.
        place: In the table, row by row, from 0.
    """
    return f"{table}-cell-{place}"


def embed(table: PaperTable) -> str:
    """The fragment; cells have ids, those that miss the paper's value a class.

    Args:
        table: The table.
    """
    # What a record says is escaped in a fragment, so that its tags are the renderer's own.
    fragment = render_html(table)
    entries = [entry for _, _, entry in table]
    pieces = fragment.split('<td class="')
    assert len(pieces) == len(entries) + 1
    identity = figure_id(table)
    linked = [pieces[0]]
    for place, (entry, piece) in enumerate(zip(entries, pieces[1:], strict=True)):
        above = (entry.deviations or 0) > 0
        side = ("above " if above else "below ") if entry.outside_tolerance else ""
        kind = f"miss {side}" if side else ""
        linked.append(f'<td id="{cell_id(identity, place)}" class="{kind}{piece}')
    name = escape(f"Table {table.layout.number}, scrolls sideways")
    scroll = f'<div class="scroll" role="group" aria-label="{name}"><table>'
    before, *grids = "".join(linked).split("<table>")
    for part, grid in zip(table.parts, grids, strict=True):
        names = len(part.layout.headings)
        before += scroll + grid.replace('<th scope="col">', '<th scope="col" class="name">', names)
    return before.replace("</table>", "</table></div>")
