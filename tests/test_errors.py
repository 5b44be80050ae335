import pytest

from robust_diffusion.errors import (
    AttackError,
    ConfigError,
    DataError,
    RobustDiffusionError,
    TrainingError,
)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (ConfigError, ValueError),
        (DataError, ValueError),
        (TrainingError, RuntimeError),
        (AttackError, RuntimeError),
    ],
)
def test_error_can_be_caught_by_base_and_by_builtin(
    error: type[RobustDiffusionError], builtin: type[Exception]
) -> None:
    for caught in (RobustDiffusionError, builtin):
        with pytest.raises(caught, match="why"):
            raise error("why")
