import shutil
import subprocess
from pathlib import Path

import pytest

from robust_diffusion.records import provenance

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
