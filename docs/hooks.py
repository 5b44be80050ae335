"""Brings experiments/ into the site, its views into the menu, and mends the links to docs/."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List every published view that `nav` does not name."""
    (chapter,) = (part["Results"] for part in config.nav or [] if "Results" in part)
    named = {path for entry in chapter for path in entry.values()}
    menus: dict[str, list[dict[str, str]]] = {"Tables of the paper": [], "Experiments": []}
    for path in sorted(RESULTS.glob("*.md"), key=_place):
        name = path.relative_to(ROOT).as_posix()
        table = re.fullmatch(r"table-(\d+)-(\w+)", path.stem)
        if table:
            title = "Table {}, {}".format(*table.groups())
            menus["Tables of the paper"].append({title: name})
        elif name not in named:
            menus["Experiments"].append({path.stem: name})
    chapter += [{title: menu} for title, menu in menus.items()]
    return config


def _place(path: Path) -> tuple[int, str]:
    number = re.search(r"\d+", path.stem)
    return int(number[0]) if number else 0, path.stem


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the published tables."""
    for path in sorted((ROOT / "experiments").rglob("*.md")):
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


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """In a table a bar has a backslash before it, which code would show."""
    return re.sub(r"<td.*?</td>", lambda cell: cell[0].replace("\\|", "|"), html, flags=re.DOTALL)
