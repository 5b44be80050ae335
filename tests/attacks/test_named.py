from collections.abc import Callable
from typing import Any

import pytest
from hydra.utils import instantiate

from robust_diffusion.attacks.named import attack_names, build_attack
from robust_diffusion.errors import ConfigError


@pytest.mark.parametrize("name", attack_names())
def test_an_attack_has_the_options_of_the_command_line(
    compose: Callable[..., Any], name: str
) -> None:
    attack = build_attack(name)
    expected = instantiate(compose(f"attack={name}").attacks[name])
    assert type(attack) is type(expected)
    assert vars(attack) == vars(expected)
    # By hand, without any option, it is the same.
    assert vars(type(attack)()) == vars(expected)


def test_unknown_name() -> None:
    with pytest.raises(ConfigError, match=r"attacks=pdg: unknown; use one of agia, auto, .*tdgia"):
        build_attack("pdg")
    assert "none" not in attack_names()
