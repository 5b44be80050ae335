from collections.abc import Callable
from typing import Any

import pytest

from robust_diffusion import run
from robust_diffusion.commands.usage import GROUPS, usage
from robust_diffusion.run import COMMANDS
from tests.test_config import GROUPS as FOLDERS
from tests.test_config import options

Cli = Callable[..., Any]


@pytest.fixture(autouse=True)
def _nothing_is_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "cell", lambda: pytest.fail("Hydra was asked"))


@pytest.mark.parametrize("given", [["--help"], ["-h"], ["flow=heat", "--help"]])
def test_help_names_every_command_and_option(cli: Cli, given: list[str]) -> None:
    outcome = cli(*given)
    assert (outcome.status, outcome.out, outcome.err) == (0, usage(COMMANDS), "")
    assert GROUPS.keys() == {*FOLDERS, "hydra/launcher", "hydra/sweeper"}
    words = set(usage(COMMANDS).replace(",", " ").split())
    assert words >= {*COMMANDS, *GROUPS, *(option for group in GROUPS for option in options(group))}
    assert max(map(len, usage(COMMANDS).splitlines())) <= 100
