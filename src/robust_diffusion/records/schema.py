"""Base of the schemas of files that may come from elsewhere."""

import reprlib
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

UnitShare = Annotated[float, Field(ge=0, le=1)]


class Schema(BaseModel):
    """Base of all schemas: no conversion of values, unknown keys are allowed, NaN is not."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)


def misfit(schema: type[Schema], value: Any) -> str | None:
    """Return the first key of a value that does not fit a schema, and why; `None` if all fit."""
    try:
        schema.model_validate(value)
    except ValidationError as error:
        return first_problem(error)
    return None


def first_problem(error: ValidationError) -> str:
    """Describe the first key that does not fit, and why."""
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")  # a validator already names the value
    if first["type"] == "extra_forbidden":
        message = "unknown, perhaps written by a later version; upgrade robust-diffusion"
    named = first["type"] in ("missing", "value_error", "extra_forbidden")
    got = "" if named else f", not {reprlib.repr(first['input'])}"
    return f"{'.'.join(map(str, first['loc'])) or 'text'}: {message}{got}"
