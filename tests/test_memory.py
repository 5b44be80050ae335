import subprocess
import sys

import pytest

from robust_diffusion.memory import keep_freed_memory

COUNT = """
import resource
import torch
from robust_diffusion.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.empty(2**24).fill_(1)  # 64 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
given_back = faults()
if keep_freed_memory():
    faults()
    print(given_back, faults())
"""


def test_kept_memory_needs_no_new_pages() -> None:
    found = subprocess.run(
        [sys.executable, "-c", COUNT], capture_output=True, text=True, check=True
    )
    if not found.stdout:
        pytest.skip("not the GNU C library")
    given_back, kept = map(int, found.stdout.split())
    assert given_back > 50 * max(kept, 1)


def test_elsewhere_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    keep_freed_memory.cache_clear()
    assert not keep_freed_memory()
    keep_freed_memory.cache_clear()
