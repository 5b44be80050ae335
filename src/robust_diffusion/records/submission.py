"""Submitted graphs that lowered a published accuracy, as the index of a zoo keeps them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from robust_diffusion.checks import Count
from robust_diffusion.errors import DataError
from robust_diffusion.records.schema import UnitShare, first_problem

FileName = Annotated[str, Field(pattern=r"^[^/\\]+$")]
"""Name of a file in the folder of the index."""

Words = Annotated[str, Field(pattern=r"^[^|<>`\[\]\r\n]{1,200}$")]
"""A line without marks of Markdown tables, links or HTML."""


@dataclass(frozen=True)
class Submission:
    """An attacked graph by somebody else, and the accuracy that it lowered."""

    author: Words
    attack: Words  # its name in the submitted report
    nodes: Count  # injected nodes
    edges: Count  # edges of the injected node that has most
    accuracy: UnitShare  # measured by `audit`, in 0..1
    graph: FileName
    graph_sha256: str
    earlier: UnitShare  # lowest accuracy within that budget until then
    earlier_attack: str


_SUBMISSIONS = TypeAdapter(list[Submission])


def checked_submission(**values: Any) -> Submission:
    """Return a submission; raise a `DataError` if a value is not valid."""
    try:
        return _SUBMISSIONS.validate_python([values])[0]
    except ValidationError as error:
        raise DataError(f"--enter: {first_problem(error)}") from error


def read_submissions(index: Path) -> Iterator[tuple[str, Submission]]:
    """Yield the run of the attacked model and the submission, for each one in a zoo's index.

    This reads the index without PyTorch; `evaluation.zoo.Zoo` checks and loads its files.
    """
    if not index.is_file():
        return
    try:
        entries = json.loads(index.read_text(encoding="utf-8"))["entries"]
        for entry in entries:
            for submission in _SUBMISSIONS.validate_python(entry.get("submissions", [])):
                yield entry["run"], submission
    except ValidationError as error:
        raise DataError(f"{index}: submissions: {first_problem(error)}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{index}: is not a valid zoo index ({error})") from error
