import logging
from collections.abc import Iterator

import pytest
import torch

from robust_diffusion.errors import ConfigError
from robust_diffusion.system import threads as module
from robust_diffusion.system.threads import set_threads

CORA, AMAZON = 10_252, 491_722  # directed edges


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "_cores", lambda: 2)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("edges", "widths", "expected"),
    [(0, 64, 1), (CORA, 64, 1), (AMAZON, [64, 64], 2), (AMAZON, 8, 1)],
)
def test_auto_takes_all_cores_where_an_epoch_is_long(
    edges: int, widths: int | list[int], expected: int
) -> None:
    assert set_threads("auto", edges, widths) == expected
    assert torch.get_num_threads() == expected


def test_auto_tells_once_the_graph_is_known(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        set_threads("auto")
        assert not caplog.text
        set_threads("auto", AMAZON)
    assert "threads=auto: 2, for an epoch of about 566 ms on one thread" in caplog.text


def test_a_number_is_taken_whatever_the_size() -> None:
    assert set_threads(2, CORA) == set_threads(2, AMAZON) == 2


@pytest.mark.parametrize("wrong", [0, -1, True, "all", "2"])
def test_anything_else_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="threads="):
        set_threads(wrong)  # type: ignore[arg-type]


def test_cores_are_those_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert module._cores() >= 1
