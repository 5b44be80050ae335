import pytest

from robust_diffusion.system import memory
from robust_diffusion.system.memory import keep_freed_memory


def test_elsewhere_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    memory._gnu_library.cache_clear()
    assert not keep_freed_memory()
    memory._gnu_library.cache_clear()
