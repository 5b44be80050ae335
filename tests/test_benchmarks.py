"""The tables of the benchmarks are made of what was measured."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RECORDED = sorted(
    path
    for path in (BENCHMARKS / "results").glob("*.json")
    if path.stem != "large"  # lines of large.py, which docs/speed.md quotes
)


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", BENCHMARKS / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_page_is_what_the_record_says(path: Path, tables: ModuleType) -> None:
    text = path.with_suffix(".md").read_text(encoding="utf-8")
    assert text == tables.as_markdown(json.loads(path.read_text(encoding="utf-8")))


def test_each_column_of_epochs_is_of_the_graph_at_its_head(tables: ModuleType) -> None:
    programs = ("straightforward", "reference", "torch", "compiled")

    def taking(milliseconds: float) -> dict[str, dict[str, float]]:
        time = dict.fromkeys(("median_ms", "q1_ms", "q3_ms"), milliseconds)
        return dict.fromkeys((*programs, "floor"), time)

    on = dict.fromkeys(("processor", "cores", "torch", "python", "allocator"), "some")
    for order in (("cora", "amazon_computer"), ("amazon_computer", "cora")):
        times = {"cora": taking(1.0), "amazon_computer": taking(20.0)}
        epoch = {dataset: times[dataset] for dataset in order}
        lines = tables.as_markdown({"machine": on, "epoch": epoch}).splitlines()
        head = next(i for i, line in enumerate(lines) if line.startswith("| one epoch"))
        names, floor = ([c.strip() for c in lines[i].split("|")[2:4]] for i in (head, head + 6))
        assert dict(zip(names, floor, strict=True)) == {"Cora": "1.0", "Amazon": "20.0"}
