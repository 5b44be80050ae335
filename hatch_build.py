"""README of the built package, whose links work outside of the repository."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[((?:!\[[^\]]*\]\([^)]*\)|[^\]])*)\]\((?!https?:|#)([^)]+)\)")
"""An image or link to a file of the repository."""


class CustomMetadataHook(MetadataHookInterface):
    """Link to the repository's address; without one, keep the text and drop pictures."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the readme of the package."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        metadata["readme"] = {"content-type": "text/markdown", "text": portable(text, repository)}


def portable(text: str, repository: str | None) -> str:
    """Return Markdown without links that only a checkout resolves.

    Args:
        text: Markdown of a file at the root of the repository.
        repository: Its address, such as https://github.com/owner/name, or None.
    """

    def absolute(found: re.Match[str]) -> str:
        bang, label, target = found.groups()
        if repository is None:
            return "" if bang else label
        kind = "raw" if bang else "blob"
        return f"{bang}[{label}]({repository.rstrip('/')}/{kind}/main/{target})"

    return LINK.sub(absolute, text)
