"""Records of runs: their store, identity, form and provenance."""

from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from robust_diffusion.records.records import append_record, latest_by_run, read_records

__all__ = ["append_record", "latest_by_run", "read_records"]

if not TYPE_CHECKING:  # where a checker would take any name for one of the package
    __getattr__ = lazy_attributes(__name__)
