"""Builds the pages that nobody writes: results, tables, flags, commands, keys, run notebooks."""

import ast
import base64
import csv
import io
import json
import logging
import os
import re
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stdout
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

BOOST = {
    "experiments/results/leaderboard.md": 10,
    "api/flows.md": 3,
    **dict.fromkeys(["reading.md", "guides/model.md", "guides/sweeps.md"], 2),
    **dict.fromkeys(["api/attacks.md", "paper/tables.md", "reference/configuration.md"], 0.3),
}
"""Weight of a page in the search, where long lists would bury explanations."""

FIGURES = {
    5: ("Accuracy by solver against evaluations of the flow in a forward pass", "solvers"),
    9: ("Accuracy against the number of injected nodes, each with as many edges", "injections"),
}
"""Chart of a table: its description and file."""

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
    """Let equations be drawn, and link to the repository if the package names one."""
    config.markdown_extensions.append(_Extension())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if repository := project["urls"].get("Repository"):
        config.repo_url, config.repo_name = repository, "Repository"
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add experiments/ and the pages of `GENERATED`."""
    for path in sorted((ROOT / "experiments").rglob("*.md")):
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        text = "\n\n".join(executed(path))
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
    for name, lines in GENERATED.items():
        files.append(File.generated(config, name, content="\n".join(lines())))
    return files


def _tables() -> Iterator[str]:
    """Every published table of the paper, a tab per variant."""
    yield "# Tables"
    yield "Every table that the published records fill, measured beside printed. The tabs switch "
    yield "between the [two variants](deviations.md#between-the-text-and-the-code). "
    yield "`robust-diffusion table 3` prints one from your records.\n"
    found = {path.stem: path for path in RESULTS.glob("table-*.md")}
    for number in sorted({int(name.split("-")[1]) for name in found}):
        yield f"## Table {number}\n"
        if number in FIGURES:
            yield "![{}](../figures/{}.svg)\n".format(*FIGURES[number])
        for variant in ("paper", "released"):
            path = found.get(f"table-{number}-{variant}")
            if path is not None:
                yield f'=== "`{variant}`"\n'
                yield from (f"    {line}" for line in path.read_text("utf-8").splitlines())
                yield ""


def _entries() -> Iterator[str]:
    """Every entry that deviates from the paper, with its cause."""
    yield "# Deviations, entry by entry\n"
    yield "Accuracy in % on Cora's easy test nodes with 50 injected nodes and five seeds, unless "
    yield "an entry says otherwise. Numbers in brackets name tables. **Chance**: within what "
    yield "seeds or rounding decide; **explained**, shown by a run; **likely**, fits and is not "
    yield "proven; **open**; **paper's**, the authors' code does not give the printed value either."
    with (ROOT / "experiments" / "deviations.csv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file))
    for variant in ("released", "paper"):
        yield f"\n## `fidelity={variant}`\n"
        yield from (_row(rows[0][1:]), _row(["---"] * (len(rows[0]) - 1)))
        yield from (_row(row[1:]) for row in rows if row[0] == variant)


def _flags() -> Iterator[str]:
    """Every flag with its meaning and remedy."""
    from robust_diffusion.evaluation.flag_codes import DECLARED

    yield "# Flags\n\nA flag is a reason not to read an accuracy as a worst case"
    yield "([Read a result](../reading.md#flags)). Once every target is misclassified, only flags "
    yield "of the first kind remain."
    kinds = {"number": "The accuracy is in doubt", "attack": "The attack may be weak"}
    for kind, title in kinds.items():
        yield f"\n## {title}\n\n| flag | meaning | what to do |\n|---|---|---|"
        for code, flag in DECLARED.items():
            if flag.kind == kind:
                yield _row([f"`{code}`", flag.meaning, flag.remedy])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


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
    from robust_diffusion.run import ALL_COMMANDS

    run = "python -m robust_diffusion.run"
    yield f"# Commands\n\n```bash\n{run} key=value ...    # a run"
    yield f"{run} -m key=a,b ...   # a sweep"
    yield "robust-diffusion COMMAND ...\n```\n"
    environment = {**os.environ, "COLUMNS": "100"}
    for name in ALL_COMMANDS:
        command = [sys.executable, "-m", "robust_diffusion.run", name, "--help"]
        shown = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, check=True, env=environment
        )
        yield f"## `{name}`\n\n```text\n{shown.stdout.rstrip()}\n```\n"


GENERATED: dict[str, Callable[[], Iterator[str]]] = {
    "paper/tables.md": _tables,
    "paper/entries.md": _entries,
    "reference/commands.md": _commands,
    "reference/configuration.md": _configuration,
    "reference/flags.md": _flags,
}


def executed(path: Path) -> Iterator[str]:
    """Run a notebook, and yield its cells and what they print as Markdown."""
    os.environ["MPLBACKEND"] = "agg"
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
            continue
        yield f"```python\n{source}\n```"
        printed = io.StringIO()
        with chdir(ROOT), redirect_stdout(printed), warnings.catch_warnings(action="ignore"):
            logging.disable()  # progress of training
            value = _run(source, f"{path.name}: {cell['id']}", names)
            logging.disable(logging.NOTSET)
        if printed.getvalue():
            yield f"```text\n{printed.getvalue().rstrip()}\n```"
        yield from _figures()
        if hasattr(value, "_repr_html_"):
            yield re.sub(r"<style.*?</style>\s*", "", value._repr_html_(), flags=re.DOTALL)
        elif value is not None:
            yield f"```text\n{value!r}\n```"


def _run(source: str, name: str, names: dict[str, Any]) -> Any:
    """Run a cell, and return the value of its last line if that is an expression."""
    body = ast.parse(source, name).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), name, "exec"), names)  # noqa: S102 - our own notebook
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), name, "eval"), names)  # noqa: S307 - the same


def _figures() -> Iterator[str]:
    """Figures that a cell has drawn; none if it has not loaded matplotlib."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    for number in pyplot.get_fignums() if pyplot else ():
        image = io.BytesIO()
        pyplot.figure(number).savefig(image, format="png", bbox_inches="tight", dpi=120)
        data = base64.b64encode(image.getvalue()).decode()
        yield f"![Output of the cell above](data:image/png;base64,{data})"
        pyplot.close(number)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """In the repository docs/ and experiments/ are neighbours, in the site one holds the other."""
    name = page.file.src_uri
    if name in BOOST:
        page.meta["search"] = {"boost": BOOST[name]}
    elif name.startswith("experiments/results/"):
        # Hundreds of rows of numbers would bury every other page.
        page.meta["search"] = {"exclude": True}
    if name.startswith("experiments/") or name in GENERATED:
        # Two footnote marks in a row, "[1] [2]", would be read as a link.
        markdown = re.sub(r"\[(\d+)\]", r"\\[\1\\]", markdown)
        # The site leaves data files to the repository.
        markdown = re.sub(r"\[([^]]+)\]\([^)]+\.(?:csv|gz|json)\)", r"\1", markdown)
        return re.sub(r"\]\(((?:\.\./)+)docs/", r"](\1", markdown)
    markdown = re.sub(r"\]\(((?:\.\./)*notebooks/\w+)\.ipynb", r"](\1.md", markdown)
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
