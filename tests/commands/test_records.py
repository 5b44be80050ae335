import argparse
import json
from pathlib import Path

import pytest

from robust_diffusion.commands.records import DEFAULT_RECORDS, add_records_option, read_chosen
from robust_diffusion.errors import DataError


def write(path: str, *seeds: int) -> str:
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text("".join(json.dumps({"seed": seed}) + "\n" for seed in seeds))
    return path


def chosen(*arguments: str) -> list[str] | None:
    parser = argparse.ArgumentParser()
    add_records_option(parser)
    named: list[str] | None = parser.parse_args(arguments).records
    return named


def test_several_files_are_read_in_their_order() -> None:
    files = [write("b.jsonl", 1, 2), write("a.jsonl", 3)]
    named = chosen("--records", files[0], "--records", files[1])
    assert [record["seed"] for record in read_chosen(named)] == [1, 2, 3]


def test_without_the_option_the_default_file_is_read_if_it_is_there() -> None:
    assert read_chosen(chosen()) == []
    with pytest.raises(DataError, match=f"--records {DEFAULT_RECORDS}: not found"):
        read_chosen(chosen(), required=True)
    write(DEFAULT_RECORDS, 7)
    assert [record["seed"] for record in read_chosen(chosen(), required=True)] == [7]


def test_a_named_file_has_to_be_there() -> None:
    with pytest.raises(DataError, match=r"--records no\.jsonl: not found; name a file"):
        read_chosen(chosen("--records", "no.jsonl"))
