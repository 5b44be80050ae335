import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.records import content
from robust_diffusion.records.content import by_content, user_code, user_files

FLOW = """
from robust_diffusion.flows import Heat
from .sub.rates import RATE

class MyFlow(Heat):
    def forward(self, t, z, graph):
        return RATE * super().forward(t, z, graph)
"""

PACKAGE = {
    "own/__init__.py": "from own.mine import MyFlow",
    "own/mine.py": FLOW,
    "own/sub/rates.py": "from ..base import RATE",  # in a folder without __init__.py
    "own/base.py": "RATE = 1.0",
    "own/unused.py": "",
    "beside.py": "",
}

Write = Callable[[Mapping[str, str]], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes modules of the user's, as a new process would find them."""
    monkeypatch.syspath_prepend(tmp_path)

    def files(texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        importlib.invalidate_caches()
        content._hashes.cache_clear()

    return files


@pytest.mark.parametrize("target", ["own.mine.MyFlow", "own.MyFlow", "own.mine.MyFlow.forward"])
def test_modules_of_a_package_are_followed(write: Write, target: str) -> None:
    write(PACKAGE)
    found = user_code({"model": {"flows": [{"_target_": target}]}})
    assert list(found) == ["own", "own.base", "own.mine", "own.sub.rates"]


@pytest.mark.parametrize("changed", ["own/__init__.py", "own/mine.py", "own/base.py"])
def test_a_changed_module_counts(write: Write, changed: str) -> None:
    config = {"_target_": "own.mine.MyFlow"}
    write(PACKAGE)
    before = user_code(config)
    write({"own/unused.py": "x = 1", changed: PACKAGE[changed] + "  # why"})
    assert user_code(config) == before
    write({changed: PACKAGE[changed] + "\nx = 1"})
    assert user_code(config) != before


def test_files_count_by_content_and_not_place(tmp_path: Path) -> None:
    old, new = tmp_path / "old.pt", tmp_path / "new.pt"
    old.write_bytes(b"one")
    new.write_bytes(b"one")

    def found(path: Path) -> dict[str, Any]:
        return by_content({"model": {"parts": [{"weights": str(path)}]}})

    before = found(old)
    assert found(new) == before
    new.write_bytes(b"two")
    assert found(new) != before
    assert list(user_files({"model": {"weights": str(new)}})) == ["model.weights"]


def test_a_file_in_a_data_dir_counts_by_content(tmp_path: Path) -> None:
    (tmp_path / "adj.npz").write_bytes(b"one")
    config = {"attacks": {"given": {"data_dir": str(tmp_path), "path": "adj.npz"}}}
    before = user_files(config)
    assert list(before) == ["attacks.given.path"]
    (tmp_path / "adj.npz").write_bytes(b"two")
    assert user_files(config) != before


@pytest.mark.slow
def test_an_edited_flow_is_run_again(
    write: Write, cli: Callable[..., Any], tiny_clean: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the record nor the weights of the old code are served."""

    def run(rate: float) -> dict[str, Any]:
        for name in [name for name in sys.modules if name.split(".")[0] == "own"]:
            monkeypatch.delitem(sys.modules, name)
        write(PACKAGE | {"own/base.py": f"RATE = {rate}"})
        flow = ("flow=heat", "flow._target_=own.mine.MyFlow")
        found: dict[str, Any] = cli(*flow, "logger=none", *tiny_clean).records[-1]
        return found

    first, again, edited = run(1.0), run(1.0), run(-30.0)
    assert (again["cell"], again.get("reference")) == (first["cell"], True)
    assert edited["cell"] != first["cell"]
    assert edited["reused"] == []
    changed = set(edited["user_code"].items()) - set(first["user_code"].items())
    assert [module for module, _ in changed] == ["own.base"]


def test_modules_of_one_folder_are_followed_though_they_are_broken(write: Write) -> None:
    write({"alone.py": "import beside, json, torch", "beside.py": "def", "unused.py": ""})
    given = {"_target_": "hydra.utils.get_class", "path": "alone.MyAttack"}
    assert list(user_code({"attack": given})) == ["alone", "beside"]


@pytest.mark.parametrize(
    "config",
    [
        *({"_target_": of} for of in ("robust_diffusion.flows.Heat", "no.such.module")),
        {"data": {"name": "cora", "source": {"folder": {"path": "cora"}}}},
        {"model": {"folder": "folder/sub", "_target_": "folder/sub/log.csv"}},
        {"training": {"trainer": {"default_root_dir": "folder/sub/log.csv"}}},
        {"model": {"weights": "missing.pt", "rate": 0.5, "bad": "x\0.pt", "long": "x." * 999}},
    ],
)
def test_names_that_look_like_files_or_code_stay(config: dict[str, Any]) -> None:
    Path("folder/sub").mkdir(parents=True)
    Path("cora").mkdir()
    Path("folder/sub/log.csv").touch()
    assert by_content(config) == config
    assert user_files(config) == {}
