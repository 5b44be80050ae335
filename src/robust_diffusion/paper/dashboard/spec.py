"""What a dashboard shows, in terms of what runs log; W&B itself is not needed to say so."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["bar", "line", "scatter"]


@dataclass(frozen=True)
class Panel:
    """One chart.

    A key says where a run holds a value, and its name there: `summary:`, `history:` (a curve),
    `config:` (dots lead into nested parts) or `run:` (W&B's own, such as its group).

    Args:
        kind: A bar per group of runs, a line per group, or a point per run.
        title: Stands above it.
        y: Key of what is shown.
        x: Key of the other axis; `None` for bars.
    """

    kind: Kind
    title: str
    y: str
    x: str | None = None


@dataclass(frozen=True)
class Section:
    """Charts that belong together.

    Args:
        title: Heading.
        panels: From left to right, then down.
    """

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """One view of a project's runs.

    Args:
        name: What it is found by; one that is there of this name is updated.
        filters: Key -> value of the runs that it shows.
        groups: Keys that tell runs of different cells apart; those that differ in none of them,
            in their seeds that is, are shown as their mean.
        sections: From top to bottom.
    """

    name: str
    filters: dict[str, str]
    groups: tuple[str, ...]
    sections: tuple[Section, ...]

    @property
    def keys(self) -> set[str]:
        """Every key that a run has to have for the dashboard to be whole."""
        panels = [panel for section in self.sections for panel in section.panels]
        axes = {axis for panel in panels for axis in (panel.x, panel.y) if axis is not None}
        return axes | set(self.filters) | set(self.groups)
