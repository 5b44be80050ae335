import pytest

from robust_diffusion.training import ctrl_c_passes


def stop_as_lightning_does() -> None:
    try:
        raise KeyboardInterrupt  # noqa: TRY301
    except KeyboardInterrupt:
        raise SystemExit(1)  # noqa: B904


def test_ctrl_c_reaches_the_caller() -> None:
    with pytest.raises(KeyboardInterrupt), ctrl_c_passes():
        stop_as_lightning_does()


def test_another_exit_stays_an_exit() -> None:
    with pytest.raises(SystemExit) as caught, ctrl_c_passes():
        raise SystemExit(3)
    assert caught.value.code == 3
