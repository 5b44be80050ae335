"""Reading files that hold data, and files that must be refused."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from robust_diffusion.errors import DataError

Read = Callable[[Path], Any]


def refusal(read: Read, path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert len(message) < 400 + len(str(path))
    return message


def written(folder: Path, content: bytes) -> Path:
    path = folder / "file"
    path.write_bytes(content)
    return path


def check_reads_data(read: Read, content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = written(Path(folder), content)
        try:
            read(path)
        except DataError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017 - damage need not raise
            assert "\n" not in str(error)  # noqa: PT017
        assert [file.name for file in Path(folder).iterdir()] == ["file"]
