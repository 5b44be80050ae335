"""The example of every name on the API pages runs, and so do notebooks and programs."""

import doctest
import importlib
import inspect
import json
import re
from pathlib import Path

import pytest
import torch

import robust_diffusion
from robust_diffusion import Budget, attacks, evaluation, flows, models
from robust_diffusion.data import GraphDataModule
from tests import tutorials  # noqa: F401  # the reader's modules
from tests.drawn import drawn_data

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
PAGES = [page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "api").glob("*.md")]
NAMES = re.findall(r"^::: (robust_diffusion(?:\.[a-z]+)?\.\w+)$", "\n".join(PAGES), re.MULTILINE)


def test_every_name_is_on_an_api_page_once() -> None:
    classes = {
        name
        for package in (attacks, flows, models)
        for name in package.__all__
        if isinstance(getattr(package, name), type)
    }
    top_level = {name for name in robust_diffusion.__all__ if not name.startswith("__")}
    shown = [name.rpartition(".")[2] for name in NAMES]
    assert len(shown) == len({*shown})
    assert {*top_level, *evaluation.__all__, *classes} <= {*shown}
    assert {name for name in NAMES if name.count(".") == 1} == {
        f"robust_diffusion.{name}" for name in top_level
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_example_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package, _, attribute = name.rpartition(".")
    value = inspect.unwrap(getattr(importlib.import_module(package), attribute))
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    assert "    Examples:\n" in (value.__doc__ or "")
    torch.manual_seed(0)
    module = importlib.import_module(value.__module__)
    test = parser.get_doctest(value.__doc__ or "", {}, name, module.__file__, None)
    assert len(test.examples) >= 2
    failed, attempted = runner.run(test)
    assert failed == 0
    skipped = [example for example in test.examples if example.options.get(doctest.SKIP)]
    assert attempted == len(test.examples) - len(skipped)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_program_of_foreign_transformers_writes_a_report_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = ROOT / "experiments" / "transformers"
    monkeypatch.syspath_prepend(reports)
    program = __import__("graph_transformers")
    options = {"attacks": "fgsm", "max_epochs": 2, "progress": False}
    program.main(GraphDataModule.from_data(drawn_data()), tmp_path, budget=Budget(3, 3), **options)
    assert {path.name for path in tmp_path.iterdir()} == {of.name for of in reports.glob("*.json")}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_computes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells), "the site shows outputs of its build"
    monkeypatch.syspath_prepend(ROOT / "docs")
    text = "\n".join(__import__("hooks").executed(path))
    assert all(model in text for model in ("<th>beltrami</th>", "<td>beltrami</td>"))
