import subprocess
import sys
from pathlib import Path

import pytest

from robust_diffusion.records import code
from robust_diffusion.records.code import code_hash


def changes(path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str) -> bool:
    monkeypatch.setattr(code, "SOURCE", path.parent)
    monkeypatch.setattr(code, "HASHED_PATHS", (path.name,))
    hashes = set()
    for text in (before, after):
        path.write_text(text)
        hashes.add(code_hash.__wrapped__())
    return len(hashes) == 2


@pytest.mark.slow
def test_all_that_training_and_attacks_import_counts() -> None:
    program = (
        "import sys\n"
        "import robust_diffusion.attacks, robust_diffusion.models, robust_diffusion.training\n"
        "print(*(m.split('.')[1] for m in sys.modules if m.startswith('robust_diffusion.')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    hashed = {part.partition("/")[0] for part in code.HASHED_PATHS}
    # These report errors, and compute nothing; of `system`, arithmetic alone does.
    assert set(done.stdout.split()) - {"checks", "errors"} == hashed


def test_other_arithmetic_is_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = set()
    for value in ("", "COMPATIBLE", "AVX2"):
        monkeypatch.setenv("MKL_CBWR", value)
        hashes.add(code_hash.__wrapped__())
    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("flow.py", "x = 1", "x = 2"),
        ("flow.py", "def f():\n    'Doc.'\n    return 1", "def f():\n    'Doc.'\n    return 2"),
        ("kernel.cpp", "int x = 1; // one", "int x = 2; // one"),
        ("rows.h", 'char* x = "//1";', 'char* x = "//2";'),
    ],
)
def test_code_of_any_language_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, before: str, after: str
) -> None:
    assert changes(tmp_path / name, monkeypatch, before, after)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("flow.py", "'Old.'\nx = 1\n'Old.'", "'New.'\n\n# why\nx = (1)\n'New.'"),
        ("flow.py", "class A:\n    'Old.'", "class A:\n    'New.'"),
        ("flow.py", "def f():\n    'Old.'\n    return 1", "def f():\n    return 1  # why"),
        ("kernel.cpp", "int x = 1;", "// why\n\n  int x = 1; /* because\n of */"),
    ],
)
def test_comments_docstrings_and_layout_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, before: str, after: str
) -> None:
    assert not changes(tmp_path / name, monkeypatch, before, after)
