from collections.abc import Iterator

import pytest
import torch

from robust_diffusion.errors import ConfigError
from robust_diffusion.system import arithmetic as module
from robust_diffusion.system.arithmetic import set_threads

CORA, AMAZON = 10_252, 491_722  # directed edges


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    assert module.usable_cores() >= 1
    monkeypatch.setattr(module, "usable_cores", lambda: 2)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("given", "edges", "widths", "expected"),
    [
        ("auto", 0, 64, 1),
        ("auto", CORA, 64, 1),
        ("auto", AMAZON, [64, 64], 2),
        ("auto", AMAZON, 8, 1),
        (2, CORA, 64, 2),
        (1, AMAZON, 64, 1),
    ],
)
def test_auto_takes_all_cores_where_an_epoch_is_long_and_a_number_is_taken(
    given: int | str, edges: int, widths: int | list[int], expected: int
) -> None:
    assert set_threads(given, edges, widths) == expected
    assert torch.get_num_threads() == expected


@pytest.mark.parametrize("wrong", [0, -1, True, "all", "2"])
def test_anything_else_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="threads="):
        set_threads(wrong)  # type: ignore[arg-type]
