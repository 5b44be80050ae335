import json
import logging
from codecs import BOM_UTF8 as BOM
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.commands.records import run_records_command
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.records import append_record, read_records
from tests.paper.records import finished

pytestmark = pytest.mark.faults

GOOD = [json.dumps(finished(seed=seed)).encode() for seed in (0, 1)]
BAD = [b'{"cell": "a\xff"}', b'{"seed": 1, "accur']


def test_lines_that_cannot_be_read_move_to_a_file_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path, beside = tmp_path / "records.jsonl", tmp_path / "records.jsonl.unreadable"
    path.write_bytes(b"\n".join([BOM + GOOD[0], BAD[0], b"", GOOD[1], BAD[1]]))
    before = read_records(path)
    run_records_command(["repair", "--records", str(path)])
    assert capsys.readouterr().out == f"{path}: 2 records; 2 moved to {beside}\n"
    assert path.read_bytes() == BOM + b"".join(line + b"\n" for line in GOOD)
    assert beside.read_bytes() == b"".join(line + b"\n" for line in BAD)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert read_records(path) == before
    assert caplog.text == ""
    run_records_command(["repair", "--records", str(path)])
    assert capsys.readouterr().out == f"{path}: 2 records; nothing to repair\n"
    append_record(path, {"seed": 2})
    path.write_bytes(path.read_bytes() + BAD[1])
    run_records_command(["repair", "--records", str(path)])
    assert beside.read_bytes() == b"".join(line + b"\n" for line in [*BAD, BAD[1]])


def test_a_repair_that_is_killed_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(b"\n".join([GOOD[0], BAD[0]]))
    before = path.read_bytes()

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("robust_diffusion.commands.records.written_whole", killed)
    with pytest.raises(KeyboardInterrupt):
        run_records_command(["repair", "--records", str(path)])
    assert path.read_bytes() == before


def test_what_is_no_file_or_compressed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nope\.jsonl: not found"):
        run_records_command(["repair", "--records", str(tmp_path / "nope.jsonl")])
    (tmp_path / "records.jsonl.gz").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"leave out \.gz"):
        run_records_command(["repair", "--records", str(tmp_path / "records.jsonl.gz")])


def test_the_command_line_knows_it(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "records.jsonl").write_bytes(BAD[0] + b"\n" + GOOD[0] + b"\n")
    outcome = cli("records", "repair")
    assert outcome.status == 0
    assert outcome.out.endswith("1 moved to outputs/records.jsonl.unreadable\n")
