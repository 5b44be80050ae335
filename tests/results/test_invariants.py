"""What one data set's runs say depends neither on their order nor on any other runs."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_diffusion.paper.tables import to_frame
from robust_diffusion.records.record import Record
from robust_diffusion.records.records import by_experiment
from robust_diffusion.results.comparison import compare_settings
from robust_diffusion.results.frame import COLUMNS, frame
from robust_diffusion.results.leaderboard import leaderboard
from robust_diffusion.results.sweeps import accuracies
from robust_diffusion.results.worst_case import worst_case_table, worst_cases
from tests.paper.records import failed, finished
from tests.paper.tables import table_of
from tests.results.worst_cases import OLD, record

View = Callable[[list[Record]], pd.DataFrame]


def asked(records: list[Record]) -> list[Record]:
    return by_experiment(records).get("table-3", [])


VIEWS: dict[str, View] = {
    "frame": lambda records: frame(records)[list(COLUMNS)].drop(columns=["record", "asked"]),
    "worst_cases": lambda records: worst_case_table(worst_cases(frame(records))),
    "leaderboard": lambda records: leaderboard(frame(records)),
    "accuracies": lambda records: accuracies(asked(records)).cells,
    "compare": lambda records: compare_settings(asked(records)).cells,
    "table": lambda records: to_frame(table_of(3, records))[
        ["dataset", "graph", "model", "state", "mean", "std", "n", "difference"]
    ],
}
ACCURACIES = st.sampled_from([0.1, 0.2, 0.55, 0.7])


@st.composite
def studies(draw: st.DrawFn, dataset: str = "cora") -> list[Record]:
    """Runs of a table, with failed ones, and worst cases under one or two versions of `auto`."""
    records = []
    for seed in range(draw(st.integers(1, 3))):
        for flow in ("heat", "beltrami"):
            options: dict[str, Any] = {"dataset": dataset, "flow": flow, "seed": seed}
            typed = {"dataset": dataset, "flow": flow} if dataset == "cora" else {"flow": flow}
            if draw(st.booleans()):  # in a first attempt, or for good
                again = options | {"seed": seed + draw(st.sampled_from([0, 5]))}
                records.append(failed(overrides=typed, **again))
            records.append(finished(draw(ACCURACIES), draw(ACCURACIES), overrides=typed, **options))
        for model in ("gcn", "mlp"):
            run = record(model, seed=seed, auto=draw(ACCURACIES))
            run |= {"dataset": dataset, "run": f"{dataset} {run.run}"}
            records.append(run | (OLD if draw(st.booleans()) else {}))
    return records


def of_cora(cells: pd.DataFrame) -> list[str]:
    """Return the rows as text in any order, without the column that only several data sets have."""
    if "setting" in cells:
        cells = cells[~cells["setting"].str.contains("synthetic")]
        named = cells["setting"].str.replace("dataset=cora(, )?", "", regex=True)
        cells = cells.assign(setting=named.replace("", "(baseline)"))
    if "dataset" in cells:
        cells = cells[cells["dataset"] == "cora"].drop(columns="dataset")
    cells = cells.astype(object).where(cells.notna(), None)
    return sorted(map(repr, cells.to_dict("records")))


@pytest.mark.parametrize("name", VIEWS)
@settings(max_examples=8)
@given(st.data())
def test_other_runs_and_their_order_change_no_row(name: str, data: st.DataObject) -> None:
    own, view = data.draw(studies()), VIEWS[name]
    others = data.draw(studies(dataset="synthetic"))
    others += [failed(seed=9, dataset="synthetic"), finished(experiment="elsewhere", seed=8)]
    if name in ("frame", "worst_cases", "leaderboard"):
        others.pop()  # which are of every experiment
    if name in ("worst_cases", "leaderboard"):
        others.append(record("gcn", "poisoning", metattack=0.0))
    expected = of_cora(view(own))
    assert of_cora(view(data.draw(st.permutations(own)))) == expected
    assert of_cora(view([*others, *own])) == expected
    assert of_cora(view([*own, *others, *own])) == expected
