"""Records of cells: their store, identity, form and provenance."""

from robust_diffusion.records.records import append_record, latest_by_cell, read_records

__all__ = ["append_record", "latest_by_cell", "read_records"]
