import json
import logging
from codecs import BOM_UTF8 as BOM
from pathlib import Path

import pytest

from robust_diffusion.commands.records import run_records_command
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.records import append_record, read_records
from tests.paper.records import finished

pytestmark = pytest.mark.faults

GOOD = [json.dumps(finished(seed=seed)).encode() for seed in (0, 1)]
BAD = [b'{"cell": "a\xff"}', b'{"seed": 1, "accur']


def test_lines_that_cannot_be_read_move_to_a_file_of_their_own_and_a_kill_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, beside = tmp_path / "records.jsonl", tmp_path / "records.jsonl.unreadable"
    repair = ["repair", "--records", str(path)]
    path.write_bytes(b"\n".join([BOM + GOOD[0], BAD[0], b"", GOOD[1], BAD[1]]))
    content, before = path.read_bytes(), read_records(path)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr("robust_diffusion.commands.records.written_whole", killed)
        with pytest.raises(KeyboardInterrupt):
            run_records_command(repair)
    assert path.read_bytes() == content
    beside.unlink(missing_ok=True)
    run_records_command(repair)
    assert path.read_bytes() == BOM + b"".join(line + b"\n" for line in GOOD)
    assert beside.read_bytes() == b"".join(line + b"\n" for line in BAD)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert read_records(path) == before
    assert caplog.text == ""
    append_record(path, {"seed": 2})
    path.write_bytes(path.read_bytes() + BAD[1])
    run_records_command(repair)
    assert beside.read_bytes() == b"".join(line + b"\n" for line in [*BAD, BAD[1]])


@pytest.mark.parametrize(("name", "error"), [("no.jsonl", DataError), ("a.gz", ConfigError)])
def test_what_is_no_file_or_compressed_is_refused(name: str, error: type[Exception]) -> None:
    Path("a.gz").write_bytes(b"")
    with pytest.raises(error, match=name):
        run_records_command(["repair", "--records", name])
