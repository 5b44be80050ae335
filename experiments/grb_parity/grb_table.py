"""Table of the comparison with GRB 0.1.0, from its record alone."""
from typing import Any
def as_markdown(record: dict[str, Any]) -> str:
    return ""
