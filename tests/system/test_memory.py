import subprocess
import sys

import pytest

from robust_diffusion.system import memory
from robust_diffusion.system.memory import keep_freed_memory

COUNT = """
import resource
import torch
from robust_diffusion.system.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.empty(2**24).fill_(1)  # 64 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
given_back = faults()
if keep_freed_memory():
    for _ in range(3):  # the heap grows to its peak, in one run of four not in the first round
        faults()
    print(given_back, faults())
"""

GIVE_BACK = """
import os
from pathlib import Path
import torch
from robust_diffusion.system import memory

def taken():
    return memory._share_taken() * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

before = taken()
if memory.keep_freed_memory():
    blocks = [torch.empty(2**22).fill_(1) for _ in range(16)]  # of 16 MB
    above = torch.empty(2**10)  # in use, so that the heap cannot shrink by itself
    del blocks
    kept = taken() - before
    memory.KEPT_BELOW = 0.0
    assert not memory.keep_freed_memory()
    given_back = taken() - before
    print(kept, given_back)
"""


def printed_by(script: str) -> list[float]:
    """Numbers that a process of its own prints, since what it keeps it keeps to its end."""
    command = [sys.executable, "-c", script]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    if not found.stdout:
        pytest.skip("not the GNU C library")
    return [float(number) for number in found.stdout.split()]


def test_kept_memory_needs_no_new_pages() -> None:
    given_back, kept = printed_by(COUNT)
    assert given_back > 50 * max(kept, 1)


def test_near_the_limit_memory_is_given_back() -> None:
    kept, given_back = printed_by(GIVE_BACK)
    assert kept > 0.9 * 2**28  # 256 MB are still there
    assert given_back < 0.2 * 2**28


@pytest.mark.parametrize("library", [object(), None], ids=["another one", "none"])
def test_elsewhere_nothing_is_done(monkeypatch: pytest.MonkeyPatch, library: object) -> None:
    def load(_: None) -> object:
        if library is None:
            raise OSError
        return library

    monkeypatch.setattr("ctypes.CDLL", load)
    memory._gnu_library.cache_clear()
    assert not keep_freed_memory()
    memory._gnu_library.cache_clear()
