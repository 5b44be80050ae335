"""The example of every name on the API pages runs, and so do the notebooks."""

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
def test_the_table_of_foreign_transformers_is_what_its_command_wrote(tmp_path: Path) -> None:
    tutorial = __import__("graph_transformers")
    options = {"attacks": "fgsm", "max_epochs": 2, "progress": False}
    tutorial.main(GraphDataModule.from_data(drawn_data()), tmp_path, budget=Budget(3, 3), **options)
    reports = ROOT / "experiments" / "transformers"
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {f"{name}.json" for name in tutorial.MODELS}
    page = (ROOT / "docs" / "tutorials" / "transformers.md").read_text(encoding="utf-8")
    for name in tutorial.MODELS:
        report = json.loads((reports / f"{name}.json").read_text(encoding="utf-8"))
        rows = {row["name"]: row["accuracy"] for row in report["attacks"]}
        numbers = [report["clean_accuracy"], rows["random"], rows["auto"]]
        assert f"| {name} | {' | '.join(f'{100 * n:.1f}' for n in numbers)} |" in page


QUICK = {
    "max_epochs=80": "max_epochs=3",
    "(0.5, 1.0, 4.0)": "(0.5,)",
    "num_steps=20": "num_steps=2",
}
"""Numbers of a notebook, and smaller ones."""


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_output(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(NOTEBOOKS) == 3
    monkeypatch.chdir(ROOT)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert outputs
    assert not [of for of in outputs if of["output_type"] == "error" or of.get("name") == "stderr"]
    if path.stem == "compare_flows":
        assert any("image/png" in of.get("data", ()) for of in outputs)
        assert all(shown in json.dumps(cells) for shown in QUICK)
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in cells:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            for shown, quick in QUICK.items():
                source = source.replace(shown, quick)
            exec(compile(source, f"{path.name}: {cell['id']}", "exec"), names)
