"""Schema of `report.json`, as `RobustnessReport.save` writes it."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from robust_diffusion.attacks import Budget, SpentBudget
from robust_diffusion.attacks.base import Kind
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.records.schema import Schema, Share, first_problem
from robust_diffusion.robustness.attack_report import graph_file
from robust_diffusion.robustness.flags import Flag
from robust_diffusion.robustness.threat import Labels
from robust_diffusion.system.files import read_limited

REPORT = "report.json"
"""Name of the file."""

LARGEST = 10_000_000
"""Bytes of the file, at most."""

Text = Annotated[str, Field(max_length=200)]


class AttackClaim(Schema):
    """What a file says of one attack; fields as in `AttackReport`."""

    name: Annotated[Text, Field(min_length=1)]
    kind: Kind
    accuracy: Share
    is_control: bool
    made_on: Text
    labels: Labels = "predicted"  # reports of older versions lack what has a default
    spent: SpentBudget | None = None
    forwards: Annotated[int, Field(ge=0)] = 0
    seconds: Annotated[float, Field(ge=0)] = 0.0
    trace: tuple[tuple[int, float, Share], ...] = ()
    part_accuracy: dict[str, Share] | None = None


class Claims(Schema):
    """What a file says of a report; fields as in `RobustnessReport`, and the file's folder."""

    model: Text
    dataset: Text = ""
    clean_graph: Text = ""
    weights: Text = ""
    clean_accuracy: Share
    budget: Budget
    threat: Literal["white_box", "adaptive", "black_box"]
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    attacks: Annotated[list[AttackClaim], Field(min_length=1)]
    num_targets: Annotated[int, Field(ge=1)] = 1
    labels: Labels = "predicted"
    flags: tuple[Flag, ...] = ()
    notes: tuple[str, ...] = ()
    folder: Path = Path()

    @property
    def name(self) -> str:
        """The model, with the hash of its weights."""
        return f"{self.model} {self.weights[:8]}"

    @property
    def source(self) -> str:
        """Name of the report."""
        return f"report {self.folder.resolve().name}"


def read_claims(folder: Path) -> Claims:
    """Read `report.json` of a folder, as `RobustnessReport.save` has written it.

    Raises:
        DataError: The file is missing, or a value is out of range.
    """
    path = folder / REPORT
    try:
        claims = Claims.model_validate_json(read_limited(path, LARGEST))
        _ = claims.budget.limits  # which a board is named by
    except FileNotFoundError as error:
        raise DataError(f"{path}: not found; name a folder that report.save() has made") from error
    except ValidationError as error:
        raise DataError(f"{path}: not a report: {first_problem(error)}") from error
    except (OSError, ConfigError) as error:
        raise DataError(f"{path}: not a report ({error})") from error
    names = [attack.name for attack in claims.attacks]
    if len({graph_file(name) for name in names}) < len(names) or "clean" in names:
        raise DataError(f"{path}: attacks: share a name or a file of {', '.join(names)}")
    return claims.model_copy(update={"folder": folder})
