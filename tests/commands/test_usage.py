from collections.abc import Callable
from typing import Any

from robust_diffusion.commands.usage import GROUPS, usage
from robust_diffusion.run import COMMANDS
from tests.test_config import GROUPS as FOLDERS
from tests.test_config import options


def test_help_names_every_command_and_option(cli: Callable[..., Any]) -> None:
    outcome = cli("flow=heat", "--help")
    assert (outcome.status, outcome.out) == (0, usage(COMMANDS))
    assert GROUPS.keys() == {*FOLDERS, "hydra/launcher", "hydra/sweeper"}
    words = set(outcome.out.replace(",", " ").split())
    assert words >= {*COMMANDS, *GROUPS, *(option for group in GROUPS for option in options(group))}
