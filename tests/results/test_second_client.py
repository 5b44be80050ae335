"""A second paper, made of `results/` alone: one table of two flows against invented numbers."""

from typing import Any

import pytest

from robust_diffusion.results.cells import RecordSet, select
from robust_diffusion.results.entry import Entry, Reported, measure
from robust_diffusion.results.grid import compare_entries, mark_fewer_seeds, rank_entries
from robust_diffusion.results.markdown import aligned
from robust_diffusion.results.numbers import p_value, spread

FLOWS = {"heat": "Heat", "beltrami": "Beltrami"}
GRAPHS = {"clean": "Clean", "speit": "SPEIT"}
PUBLISHED = {
    ("heat", "clean"): Reported(81.0, 1.0),
    ("heat", "speit"): Reported(36.0, 1.0, (50, 50)),
    ("beltrami", "clean"): Reported(75.0, 1.0),
    ("beltrami", "speit"): Reported(),
}


def record(flow: str, seed: int, clean: float, attacked: float) -> dict[str, Any]:
    return {
        "cell": f"{flow} {seed}",
        "experiment": "two-flows",
        "model": "graph_pde",
        "flow": flow,
        "seed": seed,
        "accuracy": {"clean": clean, "speit": attacked},
        "budget": {"declared": {"max_injected_nodes": 20, "max_edges_per_injected_node": 20}},
        "config": {"model": {"flow": flow}, "attacks": {"speit": {}}},
    }


def table(records: list[dict[str, Any]]) -> list[list[Entry]]:
    cells = RecordSet.of(records).cells("two-flows")
    rows = [
        [
            measure(
                {"flow": flow, "graph": graph},
                graph,
                PUBLISHED[flow, graph],
                select(cells, {"flow": flow}, graph),
                comparable=True,
            )
            for graph in GRAPHS
        ]
        for flow in FLOWS
    ]
    (marked,) = mark_fewer_seeds([rows])
    return rank_entries(compare_entries(marked, runs=5), "column")


def text(entry: Entry) -> str:
    shown = spread(entry.mean, entry.std, 2)
    shown = f"**{shown}**" if entry.rank == 1 else shown
    if entry.reported.mean is not None:
        shown += f" ({spread(entry.reported.mean, entry.reported.std, 1)}"
        shown += "" if entry.p_holm is None else f", p {p_value(entry.p_holm)}"
        shown += ")"
    return " ".join([shown, *(f"[{mark.kind}]" for mark in entry.marks)])


RECORDS = [
    record("heat", 0, 0.80, 0.36),
    record("heat", 1, 0.82, 0.38),
    record("heat", 2, 0.81, 0.37),
    record("beltrami", 0, 0.60, 0.50),
    record("beltrami", 1, 0.61, 0.52),
]


def test_two_flows_against_published_numbers() -> None:
    rows = [
        [label, *map(text, entries)]
        for label, entries in zip(FLOWS.values(), table(RECORDS), strict=True)
    ]
    _, _, heat, beltrami = aligned(["Flow", *GRAPHS.values()], rows, left=1)
    assert heat.startswith("| Heat ")
    assert "| **81.00 ± 1.00** (81.0 ± 1.0, p 1) |" in " ".join(heat.split())
    assert "| 37.00 ± 1.00 (36.0 ± 1.0, p 0.48) [budget] |" in " ".join(heat.split())
    assert "| **51.00 ± 1.41** [seeds] |" in " ".join(beltrami.split())


def test_a_flow_outside_the_tolerance_is_told() -> None:
    (heat, _), (beltrami, attacked) = table(RECORDS)
    assert not heat.outside_tolerance
    assert beltrami.outside_tolerance
    assert beltrami.difference == pytest.approx(-14.5)
    assert (attacked.rank, attacked.difference) == (1, None)
