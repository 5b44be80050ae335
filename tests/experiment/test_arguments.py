"""Mistyped words of a command line: each is answered by the word that was meant."""

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from robust_diffusion.config import known_keys, nearest, option_names
from robust_diffusion.errors import ConfigError
from robust_diffusion.experiment.arguments import check_arguments
from robust_diffusion.run import ALL_COMMANDS

Cli = Callable[..., Any]

MEANT = {
    "step_size=0.5": "write solver.step_size=0.5",
    "num_steps=4": "write solver.num_steps=4",
    "num_layers=2": "write model.num_layers=2",
    "lipschitz=true": "write flow.lipschitz=true",
    "max_epochs=3": "write training.max_epochs=3",
    "flows=heat": "write flow=heat",
    "solver.nun_steps=3": "write solver.num_steps=3",
    "model.flow.lipshitz=true": "write flow.lipschitz=true",
    "trainin.max_epochs=3": "write training.max_epochs=3",
    "attacks.speit.num_step=3": "write attacks.speit.num_steps=3",
    "threat.fit.max_epoch=3": "write threat.fit.max_epochs=3",
    "dataset=Cora": "write dataset=cora, or use one of",
    "flow=haet": "write flow=heat, or use one of",
    "flow=gcn": "write model=gcn, or use one of",
    "model=beltrami": "write flow=beltrami, or use one of",
    "attack=[spiet,tdgia]": "write attack=speit, or use one of",
    "experiment=table3": "write experiment=table-3, or use one of",
    "leaderbord": "write leaderboard",
    "evalaute": "write evaluate",
    "heat": "write flow=heat",
    "dataset": "write dataset=..., with one of actor",
    "--hlep": "write --help",
    "--multi-run": "write --multirun",
    "flow=[heat,beltrami]": "add -m, and write flow=heat,beltrami",
    "flow=heat,beltrami": "add -m to run each",
    "seed=0,1": "add -m to run each",
    "attack=speit,tdgia": "add -m to run each, or write attack=[speit,tdgia] for a list",
}
"""Mistyped word -> the remedy in its error."""


@pytest.mark.parametrize("word", MEANT)
def test_a_mistyped_word_is_answered_by_what_was_meant(cli: Cli, word: str) -> None:
    outcome = cli(*["evaluate"] * word.startswith("evaluate "), word)
    assert (outcome.status, outcome.out) == (1, "")
    (line,) = outcome.err.splitlines()
    assert line.startswith(f"error: {word.partition('=[')[0].partition(',')[0]}")
    assert MEANT[word] in line
    assert ("for a list" in line) == word.startswith("attack=speit")


@pytest.mark.parametrize("group", ["flow", "model", "solver", "dataset", "attack", "experiment"])
def test_every_option_is_found_with_one_letter_less_or_another_case(group: str) -> None:
    options = option_names(group)
    for option in options:
        assert nearest(option.upper(), options) == option
        if len(option) > 4 and (shorter := option[:2] + option[3:]) not in options:
            assert nearest(shorter, options), shorter


def test_every_key_of_the_configuration_is_known(cli: Cli) -> None:
    for key in ("flow.rate", "solver.rtol", "model.hidden_channels", "budget.epsilon", "seed"):
        check_arguments([f"{key}=1"])
    keys = [key for key in known_keys() if key.count(".") == 1 and not key.startswith("paths")]
    for key in keys:
        check_arguments([f"{key}=1"])
        check_arguments([f"+{key}x=1", f"~{key}"])


def test_options_and_keys_of_other_folders_are_left_to_hydra() -> None:
    for words in (
        ["--config-dir", "my", "flow=my_flow", "flow.mine=1"],
        ["hydra.searchpath=[file://my]", "dataset=mine"],
        ["--cfg", "job"],
        ["-m", "flow=glob(he*)", "model@surrogates.a=gcn", "hydra/launcher=joblib"],
        ["+model.mine=1", "++nope=1", "~budget", "seed=range(3)"],
    ):
        check_arguments(words, ALL_COMMANDS)
    with pytest.raises(ConfigError, match=re.escape("--cfg -m")):
        check_arguments(["--cfg", "-m"])


WITHOUT_HYDRA = """
import sys
from contextlib import suppress
from robust_diffusion.run import main
with suppress(SystemExit):
    main(sys.argv[1:])
sys.exit("hydra.main" in sys.modules or "pydantic" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "word", ["--help", "", "leaderbord", "--hlep", "step_size=1", "flow=haet", "solver.stps=1"]
)
def test_help_and_mistakes_are_answered_at_once(word: str) -> None:
    command = [sys.executable, "-c", WITHOUT_HYDRA, *word.split()]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert outcome.returncode == 0, outcome.stderr
