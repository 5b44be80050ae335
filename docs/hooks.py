"""Brings experiments/ into the site, and mends the links between it and docs/."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the published tables and pages."""
    for path in sorted((ROOT / "experiments").rglob("*")):
        if path.suffix in (".md", ".html"):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """In the repository docs/ and experiments/ are neighbours, in the site one holds the other."""
    if page.file.src_uri.startswith("experiments/"):
        # Two footnote marks in a row, "[1] [2]", would be read as a link.
        markdown = re.sub(r"\[(\d+)\]", r"\\[\1\\]", markdown)
        return re.sub(r"\]\(((?:\.\./)+)docs/", r"](\1", markdown)
    return re.sub(r"\]\(((?:\.\./)*)\.\./experiments/", r"](\1experiments/", markdown)
