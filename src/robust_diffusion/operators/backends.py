"""Names of the backends that compute the sums over edges."""

from typing import Literal

Backend = Literal["auto", "compiled", "torch", "reference"]
