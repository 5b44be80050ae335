"""Records of runs: their files, identity, schema and provenance, and the cache of artifacts."""

from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from robust_diffusion.records.records import append_record, latest_by_run, read_records

__all__ = ["append_record", "latest_by_run", "read_records"]

if not TYPE_CHECKING:  # type checkers would otherwise accept any name as an attribute
    __getattr__ = lazy_attributes(__name__)
