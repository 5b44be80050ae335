from contextlib import suppress
from pathlib import Path

import pytest

from robust_diffusion.errors import DataError
from robust_diffusion.unreadable import KnownUnreadableError, read_anew, read_once

pytestmark = pytest.mark.faults


def test_the_first_failure_is_told_and_the_next_is_known(tmp_path: Path) -> None:
    data = {"name": "cora"}
    with pytest.raises(DataError) as first, read_once(tmp_path, data):
        raise DataError("adj.npz: not found")
    assert not isinstance(first.value, KnownUnreadableError)
    known = pytest.raises(KnownUnreadableError, match=r"^adj\.npz: not found$")
    with known, read_once(tmp_path, data):
        pytest.fail("read again")
    with read_once(tmp_path, {"name": "citeseer"}):
        pass


def test_of_cells_side_by_side_one_tells(tmp_path: Path) -> None:
    def other_cell() -> None:
        with read_once(tmp_path, {}):
            raise DataError("found first")

    def cell() -> None:
        with read_once(tmp_path, {}):
            with suppress(DataError):
                other_cell()
            raise DataError("found second")

    with pytest.raises(KnownUnreadableError):
        cell()


def test_the_next_sweep_of_a_folder_tries_anew(tmp_path: Path) -> None:
    with pytest.raises(DataError), read_once(tmp_path, {}):
        raise DataError("not found")
    read_anew(tmp_path)
    with read_once(tmp_path, {}):
        pass


def test_outside_a_sweep_nothing_is_kept(tmp_path: Path) -> None:
    with pytest.raises(DataError), read_once(None, {}):
        raise DataError("not found")
    assert list(tmp_path.iterdir()) == []
