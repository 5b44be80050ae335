"""Brings experiments/ into the site, its views into the menu, equations into docstrings; checks."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results"
NOTEBOOKS = ROOT / "docs" / "notebooks"
CONF = ROOT / "conf"


EQUATION = re.compile(r"(?m)^( *)(?:\.\. math:: *(.+(?:\n\1 +\S.*)*)|\$\$\n([^$]+)\n\$\$)")
"""As Sphinx has them in docstrings, further lines indented, or as GitHub draws them in pages."""

BASE = re.compile(r"(rguments as\s+)`(\w+Flow)`")
"""Reference to the arguments of another class, which stands on the same page."""

DEAD = {r"\\\|": "a bar with a backslash", r"\.\. math": "an equation as text"}
"""Patterns that no page may have, and what they are."""


class _Docstrings(Preprocessor):
    """Equations become MathML, which browsers draw without a script, and base classes links."""

    def run(self, lines: list[str]) -> list[str]:
        text = EQUATION.sub(self._drawn, "\n".join(lines))
        return BASE.sub(self._linked, text).split("\n")

    def _linked(self, found: re.Match[str]) -> str:
        home = "hamiltonian" if found[2] == "HamiltonianFlow" else "base"
        return f"{found[1]}[`{found[2]}`][robust_diffusion.flows.{home}.{found[2]}]"

    def _drawn(self, found: re.Match[str]) -> str:
        drawn = convert(" ".join((found[2] or found[3]).split()), display="block")
        return f"{found[1]}{self.md.htmlStash.store(drawn)}"


class _Extension(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - Markdown's
        md.preprocessors.register(_Docstrings(md), "docstrings", 30)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List every published view that `nav` does not name."""
    config.markdown_extensions.append(_Extension())
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
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        text = "\n\n".join(part for cell in cells for part in _shown(cell))
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
    files.append(File.generated(config, "configuration.md", content="\n".join(_configuration())))
    files.append(File.generated(config, "commands.md", content="\n".join(_commands())))
    return files


def _configuration() -> Iterator[str]:
    """Every key of the configuration with its comment, and every option of each group."""
    yield "# Configuration keys\n"
    yield "Every key can be overridden and swept on the command line; `--cfg job` prints them."
    yield f"\n```yaml\n{(CONF / 'config.yaml').read_text(encoding='utf-8')}```\n\n# Groups\n"
    for group in sorted({path.parent for path in CONF.rglob("*.yaml")} - {CONF}):
        name = group.relative_to(CONF).as_posix()
        if "base" in name or name.startswith(("hydra", "dataset_model_flow")):  # parts of others
            continue
        yield f"## `{name}`\n"
        for path in sorted(group.glob("*.yaml")):
            text = path.read_text(encoding="utf-8").rstrip()
            yield f'??? note "{name}={path.stem}"\n'
            yield from (f"    {line}" for line in ["```yaml", *text.splitlines(), "```", ""])


def _commands() -> Iterator[str]:
    """The help of every command."""
    from robust_diffusion.commands import COMMANDS

    run = "python -m robust_diffusion.run"
    yield f"# Command line\n\n```bash\n{run} key=value ...    # a run"
    yield f"{run} -m key=a,b ...   # a sweep"
    yield "robust-diffusion COMMAND ...\n```\n"
    environment = {**os.environ, "COLUMNS": "100"}
    for name in COMMANDS:
        command = [sys.executable, "-m", "robust_diffusion.run", name, "--help"]
        shown = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, check=True, env=environment
        )
        yield f"## `{name}`\n\n```text\n{shown.stdout.rstrip()}\n```\n"


def _shown(cell: dict[str, Any]) -> Iterator[str]:
    """A cell of a notebook and its outputs, as Markdown."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {"text/plain": output.get("text", "")})
        if "image/png" in data:
            image = "".join(data["image/png"].split())
            yield f"![Output of the cell above](data:image/png;base64,{image})"
        elif "text/html" in data:
            yield re.sub(r"<style.*?</style>\s*", "", "".join(data["text/html"]), flags=re.DOTALL)
        else:
            yield f"```text\n{''.join(data['text/plain']).rstrip()}\n```"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """In the repository docs/ and experiments/ are neighbours, in the site one holds the other."""
    if page.file.src_uri.startswith("experiments/"):
        # Hundreds of rows of numbers would bury every other page.
        page.meta["search"] = {"exclude": page.file.src_uri.startswith("experiments/results/")}
        # Two footnote marks in a row, "[1] [2]", would be read as a link.
        markdown = re.sub(r"\[(\d+)\]", r"\\[\1\\]", markdown)
        return re.sub(r"\]\(((?:\.\./)+)docs/", r"](\1", markdown)
    markdown = re.sub(r"\]\((notebooks/\w+)\.ipynb\)", r"](\1.md)", markdown)
    return re.sub(r"\]\(((?:\.\./)*)\.\./experiments/", r"](\1experiments/", markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """In a table a bar has a backslash before it, which code would show."""
    return re.sub(r"<td.*?</td>", lambda cell: cell[0].replace("\\|", "|"), html, flags=re.DOTALL)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that shows its own marks, or whose search needs a server or a network."""
    site = Path(config.site_dir)
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    found = [
        f"{path.relative_to(site)}: {what}"
        for path, text in pages.items()
        for pattern, what in DEAD.items()
        if re.search(pattern, text)
    ]
    if "js/iframe-worker.js" not in pages[site / "index.html"]:
        found.append("index.html: a search that needs a server")
    found += [
        f"{path.relative_to(site)}: loads a script from elsewhere"
        for path, text in pages.items()
        if re.search(r"<script[^>]* src=.?https?:", text)
    ]
    if found:
        raise PluginError("\n".join(found))
