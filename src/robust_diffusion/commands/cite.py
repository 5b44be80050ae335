"""`robust-diffusion cite`: BibTeX of what a cell uses, as the docstrings of its classes name it."""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from inspect import getdoc
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from omegaconf import OmegaConf

from robust_diffusion.cells.overrides import composed

BIBLIOGRAPHY = Path(__file__).parents[1] / "references.bib"
"""BibTeX entries, whose keys are what `SOURCE` finds."""

SOURCE = re.compile(r"(?:arXiv|doi|OpenReview):[\w./-]*\w")

OWN = "of this project"
"""Words of the reference of what nobody else has published."""


def run_cite_command(arguments: Sequence[str]) -> None:
    """Print BibTeX of the software and of all that a cell's docstrings refer to.

    Raises:
        ConfigError: An override that means nothing.
    """
    parser = argparse.ArgumentParser(
        prog="robust-diffusion cite",
        description="Print BibTeX of what a cell uses: model, flow, attacks, surrogates, dataset.",
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="key=value",
        help="of the cell, as flow=beltrami attack=auto",
    )
    cfg, _ = composed(parser.parse_args(arguments).overrides)
    if "surrogates" not in cfg.threat:
        cfg.surrogates = {}
    users: dict[str, list[str]] = {"robust_diffusion": []}
    for target in dict.fromkeys(_targets(OmegaConf.to_container(cfg, resolve=True))):
        reference = reference_of(target)
        for source in SOURCE.findall(reference) or ([OWN] if OWN in reference else []):
            users.setdefault(source, []).append(target.rpartition(".")[2])
    entries = bibliography()
    for source, of in users.items():
        sys.stdout.write(f"% {', '.join(of)}: {source}\n" if of else "")
        if source != OWN:
            sys.stdout.write(entries.get(source, f"@misc{{{source}, note = {{{source}}}}}\n"))


def bibliography() -> dict[str, str]:
    """BibTeX entries by their keys."""
    entries = re.split(r"^(?=@)", BIBLIOGRAPHY.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {entry[entry.index("{") + 1 : entry.index(",")]: entry for entry in entries if entry}


def reference_of(target: str) -> str:
    """The paragraph `Reference:` of a class's docstring; "" if it has none."""
    text = getdoc(resolve_name(target)) or ""
    found = re.search(r"^Reference:(.*?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


def _targets(node: Any) -> Iterator[str]:
    """The classes and functions that a configuration names."""
    if isinstance(node, dict):
        if isinstance(node.get("_target_"), str):
            yield node["_target_"]
        node = [*node.values()]
    if isinstance(node, list):
        for child in node:
            yield from _targets(child)
