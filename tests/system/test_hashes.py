import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from robust_diffusion.system.hashes import canonical_json, source_hash
from robust_diffusion.system.tensor_hashes import ByTensor, state_hash, tensor_hash

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30)
@given(json_values)
def test_canonical_json_loses_nothing(value: Any) -> None:
    text = canonical_json(value, "key")
    assert json.loads(text) == value
    assert text.isascii()
    assert canonical_json(json.loads(text), "key") == text


def test_state_hash_follows_the_weights() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    state = module.state_dict()
    before = state_hash(state)
    assert state_hash(dict(reversed(state.items()))) == before
    with torch.no_grad():
        module[0].bias[1] += 1e-3
    after = state_hash(module.state_dict())
    assert after != before
    renamed = {name.replace("weight", "w"): tensor for name, tensor in module.state_dict().items()}
    assert state_hash(renamed) != after


def test_tensor_hash_tells_apart_what_is_seen_to_differ() -> None:
    x = torch.arange(6)
    single = [x, x.reshape(2, 3), x.reshape(3, 2), x.double(), x.int(), x.bool(), x.flip(0), x[:0]]
    single += [x[:0].reshape(0, 3), x.bfloat16(), *map(torch.tensor, (0, 0.0, -0.0))]
    several: list[tuple[Tensor, ...]] = [(x, x), (x[:3], x[3:]), (x[:2], x[2:]), ()]
    tensors = [*((tensor,) for tensor in single), *several]
    assert len({tensor_hash(*group) for group in tensors}) == len(tensors)
    y = torch.arange(12.0).reshape(3, 4)
    assert tensor_hash(y.T) == tensor_hash(y.T.contiguous())
    assert tensor_hash(y[:, ::2]) == tensor_hash(y[:, ::2].clone().requires_grad_())


def test_a_value_is_found_once_for_each_tensor_key_and_version() -> None:
    kept, asked = ByTensor(), []

    def find(tensor: Tensor, key: str = "") -> float:
        def compute() -> float:
            asked.append(key)
            return tensor.sum().item()

        return kept.kept(tensor, key, compute)

    one, other = torch.ones(2), torch.ones(2)
    assert [find(one), find(one), find(other), find(one, "a")] == [2] * 4
    assert len(asked) == 3
    one[0] = 5
    assert [find(one), find(one)] == [6, 6]
    assert len(asked) == 4
    with torch.inference_mode():
        unversioned = torch.ones(2)
        assert find(unversioned) == 2
        unversioned.zero_()
        assert find(unversioned) == 0
        assert not kept.kept(other, "tensor", lambda: torch.ones(1)).is_inference()
    del other
    gc.collect()
    assert len(kept._known) == 1


SAMPLE = """'''A docstring'''
import math

RATE = 0.5  # a comment

def decay(t: float, *names: str) -> str:
    "Another docstring, " "in two parts."

    value = math.exp(-RATE * t)
    return f"{value:.{len(names)}f} {'; '.join(f'{name!r}' for name in names)}" \\
        rf"\\{t}" + f\'\'\'
        {value}\'\'\'
"""
"""Holds nested and joined f-strings, which Python 3.12 began to split into tokens."""

PROGRAM = """
import sys
from pathlib import Path
from robust_diffusion.system.hashes import source_hash
print(*map(source_hash, map(Path, sys.argv[1:])))
"""

SOURCE = Path(__file__).parents[2] / "src"


def interpreters() -> list[Any]:
    """Return every Python from 3.11 on that this machine has, this one first."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    others = sorted(versions.glob("3.1[1-9]*/bin/python"))
    return [Path(sys.executable), *(pytest.param(p, marks=pytest.mark.slow) for p in others)]


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: path.parts[-3])
def test_source_hash_is_the_same_under_every_python(tmp_path: Path, python: Path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text(SAMPLE)
    paths = [sample, *sorted(SOURCE.rglob("*.py"))]
    done = subprocess.run(
        [python, "-S", "-c", PROGRAM, *paths],
        env={"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = done.stdout.split()
    # A constant, so that a machine with one Python compares it with the others', too.
    assert found[0] == "ed9f31ca05912fb84b5d153244c0f035bf1ad83f45d83697448a91b1a04ef752"
    assert found == list(map(source_hash, paths))


@pytest.mark.parametrize(
    ("suffix", "before", "after", "counts"),
    [
        (".py", "f'{x}'", "f'{y}'", True),
        (".py", "x = 'a' 'b'", "x = 'a' 'c'", True),
        (".py", "f'{x}'\ny", "y", True),
        (".py", "if a:\n    b\nc", "if a:\n    b\n    c", True),
        (".py", "x = 1", "x = (1)", True),
        (".cpp", "int x = 1; // one", "int x = 2; // one", True),
        (".h", 'char* x = "//1";', 'char* x = "//2";', True),
        (".py", "def f():\n    'Doc.'\n    g()", "def f():\n    g()", False),
        (".py", "class A:\n    'Old.'", "class A:\n    'New.'", False),
        (".py", "'Old.'\nx = 1\n'Old.'", "'New.'\n\n# why\nx = 1\n'New.'", False),
        (".py", "x = [1,\n     2]", "x = [1, 2]  # why", False),
        (".py", "if a:\n    b", "if a:\n\n  # why\n  b\n", False),
        (".cpp", "int x = 1;", "// why\n\n  int x = 1; /* because\n of */", False),
    ],
)
def test_source_hash_ignores_only_comments_docstrings_and_layout(
    tmp_path: Path, suffix: str, before: str, after: str, counts: bool
) -> None:
    path = tmp_path / f"module{suffix}"
    hashes = set()
    for text in (before, after):
        path.write_text(text)
        hashes.add(source_hash(path))
    assert (len(hashes) == 2) is counts
