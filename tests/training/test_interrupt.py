import pytest

from robust_diffusion.training import ctrl_c_passes


def test_another_exit_stays_an_exit() -> None:
    with pytest.raises(SystemExit) as caught, ctrl_c_passes():
        raise SystemExit(3)
    assert caught.value.code == 3
