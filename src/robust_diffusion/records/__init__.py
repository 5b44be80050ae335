"""Records of runs: their files, identity, schema and provenance, and the cache of artifacts."""

from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes

if TYPE_CHECKING:
    from robust_diffusion.records.record import Record
    from robust_diffusion.records.records import read_records, save_record

__all__ = ["Record", "read_records", "save_record"]

if not TYPE_CHECKING:  # type checkers would otherwise accept any name as an attribute
    __getattr__ = lazy_attributes(__name__)
