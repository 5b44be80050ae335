"""Attacks by name, with the default options of `conf/attack/`."""

from functools import cache

from omegaconf import OmegaConf

from robust_diffusion.attacks.base import Attack
from robust_diffusion.checks import check_choice
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError


@cache
def attack_names() -> tuple[str, ...]:
    """Return the names of the attacks that have options in `conf/attack/`.

    Examples:
        >>> from robust_diffusion.attacks import attack_names
        >>> "tdgia" in attack_names()
        True
    """
    names = {path.stem for path in (CONFIG_DIR / "attack").glob("*.yaml")}
    return tuple(sorted(names - {"none"}))


def build_attack(name: str) -> Attack:
    """Build an attack with the options that the command line uses under `fidelity=paper`.

    Args:
        name: One of `attack_names`, in upper or lower case.

    Raises:
        ConfigError: An unknown name.

    Examples:
        >>> from robust_diffusion.attacks import build_attack
        >>> type(build_attack("tdgia")).__name__
        'TDGIA'
    """
    from hydra.errors import InstantiationException
    from hydra.utils import instantiate  # late, since all of Hydra comes along

    name = check_choice("attacks", name.lower(), attack_names())
    option = OmegaConf.load(CONFIG_DIR / "attack" / f"{name}.yaml")
    fidelity = OmegaConf.load(CONFIG_DIR / "fidelity" / "paper.yaml")
    cfg = OmegaConf.merge(option, {"fidelity": fidelity})
    try:
        attack: Attack = instantiate(OmegaConf.select(cfg, name))
    except InstantiationException as error:
        raise ConfigError(f"{error.__cause__}; build the attack and give it instead") from error
    return attack
