import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from robust_diffusion import __version__, run
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


def test_help_is_answered_before_what_trains_is_imported() -> None:
    code = "import sys, robust_diffusion.run as run; run.main(['--help']); "
    code += "sys.exit(bool({'torch', 'pandas', 'pytorch_lightning'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stdout.decode()) == (0, usage(COMMANDS))


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_says_what_it_is_for(cli: Cli, command: str) -> None:
    outcome = cli(command, "--help")
    head, purpose, *_ = outcome.out.split("\n\n")
    assert (outcome.status, outcome.err) == (0, "")
    assert head.startswith(f"usage: robust-diffusion {command}")
    assert purpose[0].isupper()
    assert cli("--version").out == f"robust_diffusion {__version__}\n"
