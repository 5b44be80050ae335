import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from robust_diffusion.records import code, provenance
from robust_diffusion.records.code import code_hash


@pytest.mark.slow
def test_all_that_training_and_attacks_import_counts() -> None:
    program = (
        "import sys\n"
        "import robust_diffusion.models.graph_pde\n"
        "from robust_diffusion.attacks import *\n"
        "from robust_diffusion.flows import *\n"
        "from robust_diffusion.models import *\n"
        "from robust_diffusion.training import *\n"
        "print(*(m.split('.')[1] for m in sys.modules if m.startswith('robust_diffusion.')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    hashed = {part.partition("/")[0] for part in code.HASHED_PATHS}
    # These report errors, and compute nothing; of `system`, arithmetic alone does.
    assert set(done.stdout.split()) - {"checks", "errors"} == hashed


@pytest.mark.parametrize(
    "case",
    [
        ("flow.py", "x = 1", "x = 2", True),
        ("flow.py", "def f():\n    'Doc.'\n    return 1", "def f():\n    return 2", True),
        ("kernel.cpp", "int x = 1; // one", "int x = 2; // one", True),
        ("rows.h", 'char* x = "//1";', 'char* x = "//2";', True),
        ("flow.py", "'Old.'\nx = 1\n'Old.'", "'New.'\n\n# why\nx = 1\n'New.'", False),
        ("flow.py", "class A:\n    'Old.'", "class A:\n    'New.'", False),
        ("flow.py", "def f():\n    'Old.'\n    return 1", "def f():\n    return 1  # why", False),
        ("kernel.cpp", "int x = 1;", "// why\n\n  int x = 1; /* because\n of */", False),
    ],
)
def test_code_counts_but_no_comment_docstring_or_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, str, str, bool]
) -> None:
    name, before, after, counts = case
    monkeypatch.setattr(code, "SOURCE", tmp_path)
    monkeypatch.setattr(code, "HASHED_PATHS", (name,))
    hashes = set()
    for text in (before, after):
        (tmp_path / name).write_text(text)
        hashes.add(code_hash.__wrapped__())
    assert (len(hashes) == 2) is counts
    monkeypatch.setenv("MKL_CBWR", "other arithmetic")
    assert code_hash.__wrapped__() not in hashes


GIT = ["git", "-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]


def git(*arguments: str, folder: Path) -> str:
    result = subprocess.run(
        [*GIT, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return result.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that holds a file of the module's name, which the module then takes for it."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    own = folder / "provenance.py"
    shutil.copy(provenance.__file__, own)
    git("init", "--quiet", folder=folder)
    git("add", own.name, folder=folder)
    git("commit", "--quiet", "--message", "first", folder=folder)
    monkeypatch.setattr(provenance, "__file__", str(own))
    return folder


def test_the_revision_is_that_of_the_code(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    revision = provenance.revision()
    assert revision == git("rev-parse", "HEAD", folder=checkout)
    (checkout / "records.jsonl").write_text("{}\n")  # results beside the code
    assert provenance.revision() == revision
    installed = checkout / "site-packages"
    installed.mkdir()
    shutil.copy(checkout / "provenance.py", installed)
    (checkout / "provenance.py").write_text("# changed\n")
    assert provenance.revision() == f"{revision}-dirty"
    with monkeypatch.context() as without_git:
        without_git.setenv("PATH", str(checkout))
        assert provenance.revision() is None
    monkeypatch.setattr(provenance, "__file__", str(installed / "provenance.py"))
    assert provenance.revision() is None
