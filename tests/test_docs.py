"""The pages that are written by hand: few, short, and reachable."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def words(path: Path) -> int:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    return len(text.split())


def test_pages_written_by_hand_are_few_and_short() -> None:
    pages = [*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb"), ROOT / "experiments" / "README.md"]
    written = [path for path in pages if "\n::: " not in path.read_text(encoding="utf-8")]
    assert len(written) <= 20
    assert {path.name: words(path) for path in written if words(path) > 1200} == {}


def test_auto_is_explained_in_400_words() -> None:
    page = (DOCS / "reference" / "auto.md").read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```|^\|.*?$", "", page.split("## Appendix")[0], flags=re.S | re.M)
    assert len(prose.split()) <= 400


def test_every_figure_is_shown() -> None:
    pages = [*DOCS.rglob("*.md"), ROOT / "README.md", *(ROOT / "experiments").rglob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    text += (DOCS / "hooks.py").read_text(encoding="utf-8")
    assert [of.name for of in (DOCS / "figures").iterdir() if of.stem not in text] == []


def test_the_site_has_tabs_neighbours_palettes_and_every_page() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    theme = config["theme"]
    assert {"navigation.tabs", "navigation.footer"} <= {*theme["features"]}
    assert all("toggle" in palette for palette in theme["palette"])
    assert [name for tab in config["nav"] for name in tab] == [
        *("Start", "Guides", "Extend", "Paper", "Leaderboard", "Reference")
    ]


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_links_of_the_readme_work_outside_of_the_repository() -> None:
    portable = module(ROOT / "hatch_build.py").portable
    text = "[![a](https://b)](https://c) ![d](e.svg) [f](g.md#h) [i](#j)"
    with_address = portable(text, "https://github.com/k/l/")
    assert "![d](https://github.com/k/l/raw/main/e.svg)" in with_address
    assert "[f](https://github.com/k/l/blob/main/g.md#h)" in with_address
    assert portable(text, None) == "[![a](https://b)](https://c)  f [i](#j)"
    readme = portable((ROOT / "README.md").read_text(encoding="utf-8"), None)
    links = re.findall(r"\]\(([^)]+)\)", readme)
    assert links
    assert all(link.startswith("https://") for link in links)


def test_ratios_of_the_speed_are_those_measured() -> None:
    results = ROOT / "benchmarks" / "results"
    idle, epyc, card = (
        (results / f"{name}.md").read_text(encoding="utf-8")
        for name in ("idle", "amd-epyc", "nvidia-h100-80gb-hbm3")
    )
    (cora,) = re.findall(r"\| epoch, Cora, compiled \| ([\d.]+)x", idle)
    (amazon,) = re.findall(r"\| epoch, Amazon, compiled \| ([\d.]+)x", idle)
    (threads,) = re.findall(r"\| two threads / one, Amazon \| ([\d.]+)x", epyc)
    torch, triton = re.findall(r"\| cora, beltrami, released \| ([\d.]+), \d+ \| ([\d.]+)", card)[0]
    (plain,) = re.findall(r"\| cora, released, torch \| ([\d.]+)", card)
    (recorded,) = re.findall(r"\| cora, released, triton, captured \| ([\d.]+)", card)
    shown = [f"{float(cora):.1f}", f"{float(amazon):.1f}", f"{float(torch) / float(triton):.1f}"]
    shown += [f"{float(plain) / float(recorded):.1f}", threads]
    page = (DOCS / "questions.md").read_text(encoding="utf-8").split("### Ratios")[1]
    assert re.findall(r"\| ([\d.]+) \|", page)[:5] == shown
