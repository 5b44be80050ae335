"""Claims of a report folder: read as data, and none of them believed."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from robust_diffusion.attacks import Budget
from robust_diffusion.attacks.base import Kind
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.evaluation.report import REPORT, graph_file
from robust_diffusion.files import read_limited

LARGEST = 10_000_000
"""Bytes of a `report.json`, at most."""

Text = Annotated[str, Field(max_length=200)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Schema(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)


class AttackClaim(_Schema):
    """The claims about one attack; fields as of `AttackReport`."""

    name: Annotated[Text, Field(min_length=1)]
    kind: Kind
    accuracy: Share
    is_control: bool
    made_on: Text


class Claims(_Schema):
    """The claims of a report; fields as of `RobustnessReport`, and the folder it was read from."""

    model: Text
    dataset: Text = ""  # reports of older versions lack it, the clean graph and the weights
    clean_graph: Text = ""
    weights: Text = ""
    clean_accuracy: Share
    budget: Budget
    threat: Literal["white_box", "adaptive", "black_box"]
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    attacks: Annotated[list[AttackClaim], Field(min_length=1)]
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
        DataError: It is missing, or says something that no report says.
    """
    path = folder / REPORT
    try:
        claims = Claims.model_validate_json(read_limited(path, LARGEST))
        _ = claims.budget.limits  # which a board is named by
    except FileNotFoundError as error:
        raise DataError(f"{path}: not found; name a folder that report.save() has made") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "text"
        raise DataError(f"{path}: is no report: {key}: {first['msg']}") from error
    except (OSError, ConfigError) as error:
        raise DataError(f"{path}: is no report ({error})") from error
    names = [attack.name for attack in claims.attacks]
    if len({graph_file(name) for name in names}) < len(names) or "clean" in names:
        raise DataError(f"{path}: attacks: share a name or a file of {', '.join(names)}")
    return claims.model_copy(update={"folder": folder})
