"""Figures drawn before, embedded in the page."""

import base64
import json
import logging
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

NUMBERS = {"mean within classes": "intra_mean", "between": "inter_mean", "evenness": "evenness"}
"""Statistics given below a figure, and their keys."""


def load_pictures(folder: Path) -> list[dict[str, Any]]:
    """Every SVG of a folder, with the description in the JSON beside it.

    Args:
        folder: Folder of figures; an absent one has none.

    Returns:
        Per picture its `id`, `title`, `caption`, `facts` (the options it was drawn under), `smoke`,
        `statistics`, and `source`, a data URI: as an image it can neither run scripts nor load
        anything, whoever drew it.
    """
    return [_picture(path, i) for i, path in enumerate(sorted(folder.glob("*.svg")), start=1)]


def _picture(path: Path, number: int) -> dict[str, Any]:
    about = _description(path.with_suffix(".json"))
    facts = [str(about["dataset"])] if "dataset" in about else []
    facts += [f"{key}={about[key]}" for key in ("fidelity", "seed", "weights") if key in about]
    title = path.stem.replace("_", " ").replace("-", " ")
    if "figure" in about:
        title = f"Figure ({about.get('label', about['figure'])}): {about['figure']}"
    encoded = base64.b64encode(path.read_bytes()).decode("ascii")
    return {
        "id": f"picture-{number}",
        "title": title,
        "caption": str(about.get("caption", "")),
        "facts": ", ".join(facts),
        "smoke": about.get("scale") == "smoke",
        "source": f"data:image/svg+xml;base64,{encoded}",
        "statistics": about.get("statistics", []),
    }


def _description(path: Path) -> dict[str, Any]:
    """The description of a figure, its statistics as text; empty where it is none."""
    if not path.is_file():
        return {}
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        return {**about, "statistics": _statistics(about.get("panels", []))}
    # The file may be foreign, and hold any JSON or none.
    except (ValueError, TypeError, AttributeError):
        log.warning("%s: not a description of a figure; shown without its caption", path)
        return {}


def _statistics(panels: list[dict[str, Any]]) -> list[str]:
    lines = []
    for panel in panels:
        for weight, found in panel.get("statistics", {}).items():
            values = {name: found.get(key) for name, key in NUMBERS.items()}
            said = [f"{name} {v:.4f}" for name, v in values.items() if isinstance(v, int | float)]
            if said:
                lines.append(f"{panel.get('title', '')}, {weight}: {', '.join(said)}")
    return lines
