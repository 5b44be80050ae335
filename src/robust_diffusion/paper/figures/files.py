"""Figures as files: PDF and PNG for papers, SVG for pages, JSON for their description."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from robust_diffusion.paper.figures.draw import STYLE
from robust_diffusion.system.files import write_whole

FORMATS: Mapping[str, dict[str, Any]] = {
    # Without dates, so that the same figure is the same file.
    "pdf": {"dpi": 300, "metadata": {"CreationDate": None}},
    "png": {"dpi": 200, "metadata": {"Software": None}},
    "svg": {"dpi": 170, "metadata": {"Date": None}},
}


def write_figure(
    figure: Figure, directory: str | Path, stem: str, description: Mapping[str, Any]
) -> list[Path]:
    """Write a figure in every format, and its description to `<stem>.json`."""
    contents = {f"{stem}.{form}": render(figure, form) for form in FORMATS}
    about = {**description, "files": {form: f"{stem}.{form}" for form in FORMATS}}
    text = json.dumps(about, indent=2, sort_keys=True, allow_nan=False)
    contents[f"{stem}.json"] = f"{text}\n".encode()
    return [
        write_whole(Path(directory) / name, content, option="--directory")
        for name, content in contents.items()
    ]


def render(figure: Figure, form: str) -> bytes:
    """A figure as the bytes of a pdf, png or svg file."""
    buffer = io.BytesIO()
    with rc_context(STYLE):
        figure.savefig(buffer, format=form, **FORMATS[form])
    return buffer.getvalue()
