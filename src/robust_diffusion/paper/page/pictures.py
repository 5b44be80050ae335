"""Figures that were drawn before, taken into the page whole."""

import base64
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Picture:
    """One figure.

    Args:
        id: Anchor on the page.
        title: What it is.
        caption: What is seen.
        facts: Under which options it was drawn.
        smoke: Whether it is of a smoke run.
        source: The picture as a data URI. As an image it can neither run scripts nor load anything,
            whoever drew it.
        statistics: Per panel the numbers behind it.
    """

    id: str
    title: str
    caption: str
    facts: str
    smoke: bool
    source: str
    statistics: tuple[str, ...]


def load_pictures(folder: Path) -> list[Picture]:
    """Every SVG of a folder, with what the JSON beside it says.

    Args:
        folder: Of the figures; none if there is no such folder.
    """
    paths = sorted(folder.glob("*.svg")) if folder.is_dir() else []
    return [_picture(path, i) for i, path in enumerate(paths, start=1)]


def _picture(path: Path, number: int) -> Picture:
    about = _description(path.with_suffix(".json"))
    named = [f"{about['dataset']}"] if "dataset" in about else []
    named += [f"{key}={about[key]}" for key in ("fidelity", "seed", "weights") if key in about]
    title = path.stem.replace("_", " ").replace("-", " ")
    if "figure" in about:
        title = f"Figure ({about.get('label', about['figure'])}): {about['figure']}"
    encoded = base64.b64encode(path.read_bytes()).decode("ascii")
    return Picture(
        id=f"picture-{number}",
        title=title,
        caption=str(about.get("caption", "")),
        facts=", ".join(named),
        smoke=about.get("scale") == "smoke",
        source=f"data:image/svg+xml;base64,{encoded}",
        statistics=tuple(_statistics(about)),
    )


def _description(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        about = None
    if isinstance(about, dict) and _has_panels(about):
        return about
    log.warning("%s: not a description of a figure; shown without its caption", path)
    return {}


def _has_panels(about: dict[str, Any]) -> bool:
    panels = about.get("panels", [])
    return isinstance(panels, list) and all(
        isinstance(panel, dict)
        and isinstance(found := panel.get("statistics", {}), dict)
        and all(isinstance(numbers, dict) for numbers in found.values())
        for panel in panels
    )


def _statistics(about: dict[str, Any]) -> list[str]:
    lines = []
    for panel in about.get("panels", []):
        for weight, found in panel.get("statistics", {}).items():
            numbers = {
                "mean within classes": found.get("intra_mean"),
                "between": found.get("inter_mean"),
                "evenness": found.get("evenness"),
            }
            said = [f"{key} {v:.4f}" for key, v in numbers.items() if isinstance(v, int | float)]
            if said:
                lines.append(f"{panel.get('title', '')}, {weight}: {', '.join(said)}")
    return lines
