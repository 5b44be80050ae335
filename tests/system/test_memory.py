import subprocess
import sys

import pytest

from robust_diffusion.system import memory
from robust_diffusion.system.memory import keep_freed_memory

SCRIPT = """
import os
import resource
import torch
from robust_diffusion.system import memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.empty(2**24).fill_(1)  # 64 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def taken():
    return memory._share_taken() * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

faults()
anew = faults()
if memory.keep_freed_memory():
    for _ in range(3):  # the heap grows to its peak, in one run of four not in the first round
        faults()
    print(anew, faults())
    blocks = [torch.empty(2**22).fill_(1) for _ in range(32)]  # of 16 MB
    above = torch.empty(2**10)  # in use, so that the heap cannot shrink by itself
    del blocks
    kept = taken()
    memory.KEPT_BELOW = 0.0
    assert not memory.keep_freed_memory()
    print(kept - taken())
"""


@pytest.mark.slow
def test_kept_memory_needs_no_new_pages_and_is_given_back_near_the_limit() -> None:
    # In a process of its own, since what it keeps it keeps to its end.
    command = [sys.executable, "-c", SCRIPT]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if not found:
        pytest.skip("not the GNU C library")
    anew, again, given_back = map(float, found.split())
    assert anew > 50 * max(again, 1)
    assert given_back > 0.8 * 2**28  # of which there were hundreds of MB


def test_elsewhere_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    memory._gnu_library.cache_clear()
    assert not keep_freed_memory()
    memory._gnu_library.cache_clear()
