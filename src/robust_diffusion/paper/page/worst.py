"""Worst cases of the models, and the flow beside its control, as the page shows them."""

from collections.abc import Sequence

from robust_diffusion.evaluation.records import Record
from robust_diffusion.paper.axes import label_of
from robust_diffusion.paper.claims.evidence import WORST_CASES
from robust_diffusion.results.cells import RecordSet
from robust_diffusion.results.paired import compare_worst_cases
from robust_diffusion.results.table import ResultTable
from robust_diffusion.results.worst_case import show_worst_cases

FLOW, UNIFORM = "beltrami", "uniform_modulation"


def worst_case_cells(counted: RecordSet) -> list[Record]:
    """Finished cells of the experiments in which every model meets every attack."""
    cells = (cell for name in WORST_CASES for cell in counted.cells(name))
    return [cell.record for cell in cells if cell.finished]


def worst_case_tables(records: Sequence[Record]) -> list[ResultTable]:
    """A row per model, and the two flows seed by seed; none without records."""
    if not records:
        return []
    models = show_worst_cases(records)
    models.cells["model"] = [label_of("model", name) for name in models.cells["model"]]
    paired = compare_worst_cases(records, FLOW, UNIFORM)
    return [table for table in (models, paired) if not table.cells.empty]
