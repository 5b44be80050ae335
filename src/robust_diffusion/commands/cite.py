"""`robust-diffusion cite`: BibTeX of what a run uses, found in the docstrings of its classes."""

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.abc import SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import resolve_name
from inspect import getdoc
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from robust_diffusion.commands.parsers import add_config_dir
from robust_diffusion.experiment.overrides import composed, imported
from robust_diffusion.records.content import modules_of, targets_of

BIBLIOGRAPHY = Path(__file__).parents[1] / "references.bib"
"""BibTeX entries; their keys are the matches of `SOURCE`."""

SOURCE = re.compile(r"(?:arXiv|doi|OpenReview):[\w./-]*\w")

OWN = "of this project"
"""Reference in the docstring of a class that comes from this project."""


def run_cite_command(arguments: Sequence[str]) -> None:
    """Print BibTeX of the package and of every source that a run's docstrings cite.

    Raises:
        ConfigError: An override is invalid, or a class cannot be found.
    """
    parser = argparse.ArgumentParser(
        prog="robust-diffusion cite",
        description="Print BibTeX of what a run uses: model, flow, attacks, surrogates, dataset.",
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="key=value",
        help="overrides of the run, such as flow=beltrami attack=auto",
    )
    add_config_dir(parser)
    chosen = parser.parse_intermixed_args(arguments)
    # Values are not checked, since that would import the classes.
    cfg, _ = composed(chosen.overrides, (), chosen.config_dir)
    if "surrogates" not in cfg.threat:
        cfg.surrogates = {}
    users: dict[str, list[str]] = {"robust_diffusion": []}
    config: Any = OmegaConf.to_container(cfg, resolve=True)
    for target in dict.fromkeys(targets_of(config)):
        reference = reference_of(target)
        for source in SOURCE.findall(reference) or ([OWN] if OWN in reference else []):
            users.setdefault(source, []).append(target.rpartition(".")[2])
    entries = bibliography()
    for source, classes in users.items():
        sys.stdout.write(f"% {', '.join(classes)}: {source}\n" if classes else "")
        if source != OWN:
            sys.stdout.write(entries.get(source, f"@misc{{{source}, note = {{{source}}}}}\n"))


def bibliography() -> dict[str, str]:
    """Return BibTeX entries by their keys."""
    entries = re.split(r"^(?=@)", BIBLIOGRAPHY.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {entry[entry.index("{") + 1 : entry.index(",")]: entry for entry in entries if entry}


def reference_of(target: str) -> str:
    """Return the paragraph `Reference:` of a class's docstring; "" if it has none.

    It is read from the source, because importing the classes of a run would take seconds.
    """
    text = _docstring(target)
    if text is None:
        text = getdoc(imported(target)) or ""
    match = re.search(r"^Reference:(.*?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return " ".join(match[1].split()) if match else ""


def _docstring(target: str) -> str | None:
    """Return the docstring of a class or function, else of its first base; `None` if not found."""
    *_, (home, spec) = [("", ModuleSpec(target, None)), *modules_of(target)]
    name, *attributes = target.removeprefix(f"{home}.").split(".")
    source = spec.loader.get_source(spec.name) if isinstance(spec.loader, SourceLoader) else None
    package = home if spec.submodule_search_locations else home.rpartition(".")[0]
    for node in _nested(ast.parse(source or "").body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            bases = [ast.unparse(base) for base in getattr(node, "bases", ())]
            inherited = (_docstring(f"{home}.{base}") for base in bases[:1])
            return ast.get_docstring(node) or next(inherited, None) or ""
        if isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _docstring(".".join([origin, alias.name, *attributes]))
    return None


def _nested(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, including those in its `if` and `try` blocks."""
    for node in statements:
        yield node
        for block in ("body", "orelse"):
            if isinstance(node, ast.If | ast.Try):
                yield from _nested(getattr(node, block))
