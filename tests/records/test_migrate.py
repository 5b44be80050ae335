"""Conversion of records of schema 1."""

from typing import Any

import pytest

from robust_diffusion.records.migrate import attributed
from tests.paper.records import finished

OF_ANY = ["budget_unspent", "solvers_disagree"]


def test_flags_of_a_surrogate_leave_the_model() -> None:
    flags = {"speit": ["one_class", *OF_ANY], "tdgia": ["one_class"], "victim": ["stochastic"]}
    lines = {graph: [f"{code} it is" for code in codes] for graph, codes in flags.items()}
    new = attributed(finished(model="mlp", flags=flags, warnings=lines))
    assert new["flags"] == {"speit": OF_ANY, "victim": ["stochastic"]}
    assert new["warnings"]["speit"] == [f"{code} it is" for code in OF_ANY]
    assert new["surrogate_flags"] == {"speit": ["one_class"], "tdgia": ["one_class"]}
    assert attributed(new) == {}


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("weaker than chance: 60 % against 58 %", False),
        ("changes no prediction of the attacked model", False),
        ("3 features are out of range", True),
    ],
)
def test_warnings_older_than_flags_are_sorted_by_their_text(line: str, kept: bool) -> None:
    assert bool(attributed(finished(warnings={"speit": [line]}))["warnings"]) == kept


@pytest.mark.parametrize(
    ("changes", "same"),
    [({}, ["gcn"]), ({"seeding": "name"}, []), ({"surrogates": {"gcn": {}}}, [])],
)
def test_a_surrogate_of_the_same_configuration_and_accuracy_is_the_model(
    changes: dict[str, Any], same: list[str]
) -> None:
    record = finished(0.8, model="gcn", flags={"speit": ["one_class"]})
    record["attacked"] = {"gcn": {"clean": 0.8, "speit": 0.6}}
    record["config"]["threat"] |= {"surrogates": {"gcn": record["config"]["model"]}} | changes
    new = record | attributed(record)
    assert new["same_weights"] == same
    assert ("speit" in new["flags"]) == bool(same)
    record["attacked"]["gcn"]["clean"] = 0.7
    assert attributed(record)["same_weights"] == []
