"""Content of a dashboard, in terms of the values that runs log; independent of W&B."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Panel:
    """One chart: a bar per group of runs, a line per group, or a point per run.

    A key names a value of a run by its place: `summary:`, `history:` (a curve), `config:` (dots
    lead into nested parts) or `run:` (W&B's own, such as its group or one of its tags).
    """

    kind: Literal["bar", "line", "scatter"]
    title: str
    y: str  # key of the vertical axis
    x: str | None = None  # `None` for bars


@dataclass(frozen=True)
class Section:
    """Charts under a common heading, from left to right, then down."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """One view of a project's runs; an existing view of the same name is updated.

    Runs that agree in all `groups`, and so differ in their seeds alone, are shown as their mean.
    """

    name: str
    filters: dict[str, str]  # key -> value of the runs that are shown
    groups: tuple[str, ...]  # keys that tell cells apart
    sections: tuple[Section, ...]

    @property
    def keys(self) -> set[str]:
        """Keys that a run needs to appear in every panel."""
        panels = [panel for section in self.sections for panel in section.panels]
        axes = {axis for panel in panels for axis in (panel.x, panel.y) if axis is not None}
        return axes | set(self.filters) | set(self.groups)
