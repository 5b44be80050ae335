"""The examples of the package's own names run, and each name has one."""

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest
import torch

import robust_diffusion

NAMES = [name for name in robust_diffusion.__all__ if not name.startswith("__")]


def test_every_name_is_on_an_api_page() -> None:
    pages = Path(__file__).parents[1].joinpath("docs", "api").glob("*.md")
    shown = re.findall(
        r"^::: robust_diffusion\.(\w+)$", "\n".join(p.read_text() for p in pages), re.M
    )
    assert sorted(shown) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_example_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = inspect.unwrap(getattr(robust_diffusion, name))
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    assert "    Examples:\n" in (value.__doc__ or "")
    torch.manual_seed(0)
    module = importlib.import_module(value.__module__)
    test = parser.get_doctest(value.__doc__ or "", {}, name, module.__file__, None)
    assert len(test.examples) >= 2
    failed, attempted = runner.run(test)
    assert failed == 0
    assert attempted == len(test.examples)
