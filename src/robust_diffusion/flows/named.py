"""Registry of flows by name."""

from robust_diffusion import flows
from robust_diffusion.flows.base import Flow
from robust_diffusion.system.lazy import typed_imports

FLOWS: dict[str, type[Flow]] = {
    module.rpartition(".")[2]: getattr(flows, name)
    for name, module in typed_imports(flows.__name__).items()
    if not module.endswith((".base", ".named"))
}
"""Flows by the name of their option in `conf/flow/`, which is also the name of their module."""
