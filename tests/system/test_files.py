import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.data.files import read_npy, read_npz, read_torch
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.artifact import read_artifact
from robust_diffusion.system.files import read_limited, write_whole, written_whole


@pytest.mark.parametrize("content", ["Heat ±\n", b"\x00\xff"])
def test_a_file_holds_what_was_given(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "new" / "folder" / "table.md"
    assert write_whole(path, content, option="--out") == path
    read = path.read_bytes()
    assert read == content or read.decode() == content
    assert [found.name for found in path.parent.iterdir()] == ["table.md"]
    for place in (path, path.parent):  # a file where a folder should be, and the reverse
        with pytest.raises(ConfigError, match="--out "):
            write_whole(place / "a.md" if place is path else place, "", option="--out")


def test_a_failed_writing_leaves_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.md"
    path.write_text("before")
    with written_whole(path, locked=True) as part:
        part.write_bytes(b"damaged")
        part.unlink()
    assert path.read_text() == "before"

    def full(self: Path, content: bytes) -> int:
        with self.open("wb") as file:
            file.write(content[:1])
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ConfigError, match=os.strerror(28)):
        write_whole(path, "after", option="--out")
    assert path.read_text() == "before"
    assert [found.name for found in tmp_path.iterdir()] == ["a.md"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_leads_to_what_was_written(tmp_path: Path, *, there: bool) -> None:
    target, link = tmp_path / "a.md", tmp_path / "link.md"
    if there:
        target.write_text("before")
    link.symlink_to(target)
    assert write_whole(link, "after", option="--out") == link
    assert (link.is_symlink(), target.read_text()) == (True, "after")


@pytest.mark.skipif(os.name == "nt", reason="has no such modes")
def test_a_private_file_stays_private(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o600)
    write_whole(path, "new", option="--out")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)


GIGABYTES = 20 * 10**9


def header(size: int) -> bytes:
    about = {"x": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    text = json.dumps(about).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.faults
@pytest.mark.parametrize("declared", [GIGABYTES, 8])
@pytest.mark.parametrize(
    "read",
    [
        read_artifact,
        read_npy,
        read_npz,
        read_torch,
        lambda path: read_limited(path, 10**12),
        lambda path: ArtifactStore(path.parent)._read(path, {}),
    ],
    ids=["artifact", "npy", "npz", "torch", "text", "store"],
)
def test_a_file_that_is_all_hole_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], Any], declared: int
) -> None:
    path = tmp_path / "graph-x.safetensors"
    with path.open("wb") as file:
        file.write(header(declared))
        file.truncate(len(header(declared)) + GIGABYTES)
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("was read"))
    with pytest.raises(DataError, match=r"graph-x\.safetensors: has 18\.6 GiB"):
        read(path)


def test_a_file_of_more_than_its_header_names_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "graph-x.safetensors"
    path.write_bytes(header(8) + bytes(10**6))
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("was read"))
    with pytest.raises(DataError, match=r"graph-x\.safetensors: is damaged"):
        read_artifact(path)
