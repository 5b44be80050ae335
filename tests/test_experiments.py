"""The published tables are views over the published records."""

from pathlib import Path

import pytest

from robust_diffusion.evaluation import read_records
from robust_diffusion.report import summarize

ROOT = Path(__file__).parents[1]
PUBLISHED = sorted((ROOT / "experiments" / "results").rglob("*.jsonl"))


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_readme_shows_what_the_records_say(path: Path) -> None:
    table = summarize(read_records(path))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert table.title in readme
    shown = {tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in readme.splitlines()}
    for row in table.cells.itertuples(index=False):
        assert tuple(str(cell) for cell in row) in shown


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_published_records_are_whole_and_clean(path: Path) -> None:
    records = read_records(path)
    assert records
    for record in records:
        assert "error" not in record
        assert record["revision"]
        assert not record["revision"].endswith("-dirty")
        assert 0 <= min(record["accuracy"].values()) <= max(record["accuracy"].values()) <= 1
