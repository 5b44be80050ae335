"""Records that commands read."""

from pathlib import Path

import pytest

from robust_diffusion.commands.reading import read_chosen
from robust_diffusion.errors import DataError
from tests.paper.records import archived, finished, saved


def test_the_default_folder_may_be_missing_and_a_named_place_may_not() -> None:
    assert read_chosen(None) == []
    for places, required in (["no"], False), (None, True):
        with pytest.raises(DataError, match=": not found"):
            read_chosen(places, required=required)


def test_a_folder_and_an_archive_are_read_together() -> None:
    saved(finished(seed=0))
    archived(finished(0.5, seed=1, run="b"), path="some.jsonl.gz")
    found = read_chosen([Path("outputs/records"), "some.jsonl.gz"])
    assert [(record.seed, record.accuracy["clean"]) for record in found] == [(0, 0.75), (1, 0.5)]
