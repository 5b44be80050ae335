"""Evidence of a recorded cell."""

from typing import Any

import pytest

from robust_diffusion.results.evidence import told_of_model
from robust_diffusion.results.frame import frame
from robust_diffusion.results.table import summarize
from robust_diffusion.results.worst_case import show_worst_cases
from tests.paper.records import finished

CODES = ["one_class", "budget_unspent", "solvers_disagree"]
OF_ANY = CODES[1:]


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, OF_ANY),
        ({"surrogate_flags": {"speit": []}}, CODES),
        ({"threat": "white_box"}, CODES),
        ({"threat": "poisoning"}, CODES),
    ],
)
def test_flags_of_a_surrogate_are_not_those_of_the_model(
    changes: dict[str, Any], kept: list[str]
) -> None:
    flags = {"speit": CODES, "tdgia": CODES[:1], "victim": ["stochastic"]}
    lines = {graph: [f"{code} it is" for code in codes] for graph, codes in flags.items()}
    values = {"speit": 0.4, "tdgia": 0.7}
    record = finished(0.75, values, model="mlp", flow=None, flags=flags, warnings=lines, **changes)
    shown = frame([record]).set_index("attack")["flags"]
    assert shown["speit"] == set(kept)
    assert shown["tdgia"] == set(kept) - set(OF_ANY)
    assert told_of_model(record, "flags")["victim"] == ["stochastic"]
    notes = " ".join(summarize([record]).notes)
    assert ("one_class it is" in notes) == ("one_class" in kept)
    assert "budget_unspent it is" in notes
    assert ("one_class" in " ".join(show_worst_cases([record]).notes)) == ("one_class" in kept)


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("weaker than chance: 60 % against 58 %", False),
        ("changes no prediction of the attacked model", False),
        ("3 features are out of range", True),
    ],
)
@pytest.mark.parametrize("threat", ["black_box", "white_box"])
def test_warnings_older_than_flags_are_told_by_their_text(
    line: str, kept: bool, threat: str
) -> None:
    told = told_of_model(finished(warnings={"speit": [line]}, threat=threat), "warnings")
    assert bool(told) == (kept or threat == "white_box")


def test_a_surrogate_with_the_weights_of_the_model_speaks_for_it() -> None:
    record = finished(0.8, model="gcn", flags={"speit": ["one_class"]})
    record["attacked"] = {"gcn": {"clean": 0.8, "speit": 0.6, "tdgia": 0.6}}
    record["config"]["threat"] |= {"surrogates": {"gcn": record["config"]["model"]}}
    assert told_of_model(record, "flags") == {"speit": ["one_class"]}
