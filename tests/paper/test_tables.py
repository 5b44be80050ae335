"""The paper's tables: layouts of what is printed, fitted to what was run, and their formats."""

import io
from typing import Any

import pandas as pd
import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.agreement import agreement
from robust_diffusion.paper.axes import AXES
from robust_diffusion.paper.tables import (
    PaperTable,
    load_layout,
    parse_layout,
    printed_numbers,
    table_numbers,
    to_frame,
)
from robust_diffusion.results.show import Form, show
from robust_diffusion.system.numbers import holm
from tests.paper.records import Record, finished, seeds, timed
from tests.paper.tables import everything, golden, table_of

SECTION: dict[str, Any] = {
    "number": 99,
    "name": "things",
    "label": "flows",
    "caption": "A table.",
    "rows": {"dataset": "Dataset", "attack": "Attack"},
    "columns": ["model"],
    "best": "row",
}


@pytest.mark.parametrize("number", table_numbers())
def test_a_layout_has_every_printed_number_of_its_table_once(number: int) -> None:
    layout = load_layout(number)
    numbers = printed_numbers(layout.label)
    shown = pd.concat([view.printed[[*view.axes]] for view in layout.grids])
    assert len(shown) == len(numbers)
    assert not shown.duplicated().any()
    assert not layout.printed[[*AXES]].duplicated().any()
    assert (numbers["mean"].notna() | numbers["std"].isna()).all()


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"nope": 1}, "table=nope"),
        ({"number": 0}, "table.number=0"),
        ({"best": "both"}, "table.best=both"),
        ({"kind": "speed"}, "table.kind=speed"),
        ({"below": {"nope": []}}, "table=nope"),
        ({"columns": ["nope"]}, "table.axis=nope"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_layout(SECTION | changes)
    assert str(refused.value).startswith(key)


def columns(table: PaperTable) -> list[str]:
    return list(dict.fromkeys(to_frame(table)["column"]))


@pytest.mark.parametrize(
    ("number", "options", "label"),
    [
        (3, {"flow": "my_flow"}, "my_flow"),
        (3, {"flow": "heat_plus"}, "Heat⁺"),
        (3, {"settings": {"flow": {"lipschitz": False}}}, "Beltrami w/o Lips."),
        (1, {"model": "mlp", "flow": None}, "MLP"),
        (12, {"model": "gcn", "dataset": "coauthor"}, "GCN"),
    ],
)
def test_a_model_that_the_table_lacks_is_its_last_column(
    number: int, options: dict[str, Any], label: str
) -> None:
    own = {"experiment": f"table-{number}"}
    record = finished(0.7, {"speit": 0.5, "tdgia": 0.4}, **own, **options)
    table = table_of(number, [finished(0.75, **own), record])
    assert columns(table) == [*columns(table_of(number, [])), label]
    last = to_frame(table).query("column == @label and n > 0")
    assert list(last["mean"]) == pytest.approx([70, 50, 40])
    assert set(last["dataset"]) == {record.dataset}
    assert last[["printed_mean", "p", "difference"]].isna().all(axis=None)


def test_a_flow_with_options_that_no_table_has_is_not_shown() -> None:
    other = finished(0.1, flow="p_laplacian", settings={"flow": {"p": 5}})
    assert columns(table_of(3, [finished(), other])) == columns(table_of(3, []))


def test_what_a_table_lacks_changes_neither_its_cells_nor_their_agreement() -> None:
    names = ["row", "column", "mean", "p_holm", "deviations"]

    def compared(records: list[Record]) -> tuple[list[Any], list[Any]]:
        table = table_of(3, records)
        own = to_frame(table).query("model != 'my_flow' and dataset != 'my_graph' and n > 0")
        entries = agreement([table]).entries
        return own[[*names, "n"]].to_numpy().tolist(), entries[names].to_numpy().tolist()

    records = [*seeds([0.7, 0.72, 0.74]), *seeds([0.5, 0.52], flow="heat")]
    own = [*seeds([0.1, 0.2], flow="my_flow"), *seeds([0.1, 0.2], dataset="my_graph")]
    assert repr(compared([*records, *own])) == repr(compared(records))


@pytest.mark.parametrize(
    ("number", "own"), [(3, {"flow": "heat"}), (2, {"model": "beltrami_guard"})]
)
def test_a_stand_in_takes_the_place_of_its_dataset_beside_the_same_printed_numbers(
    number: int, own: dict[str, str]
) -> None:
    own = own | {"experiment": f"table-{number}"}
    on_cora, on_words = seeds([0.6, 0.7], **own), seeds([0.7, 0.8], dataset="citeseer_words", **own)

    def of(table: PaperTable, dataset: str) -> pd.DataFrame:
        return table.cells[table.cells["dataset"] == dataset].reset_index(drop=True)

    table, paper = table_of(number, on_cora + on_words), table_of(number, on_cora)
    cells = of(table, "citeseer_words")
    assert of(table, "citeseer").empty
    assert cells["printed_mean"].equals(of(paper, "citeseer")["printed_mean"])
    assert cells.loc[cells["n"] > 0, "difference"].notna().all()
    assert any("3,703 words" in line for line in table.lines)
    assert "words" not in show(paper)
    # Counted apart: the corrected p-values on the paper's own features stay.
    assert of(table, "cora")["p_holm"].equals(of(paper, "cora")["p_holm"])
    both = [agreement([table], stand_ins=stand_ins).entries for stand_ins in (False, True)]
    assert [set(x["dataset"]) for x in both] == [{"cora"}, {"citeseer_words"}]
    former = seeds([0.6], dataset="planetoid_citeseer", **own)
    assert of(table_of(number, on_cora + former), "planetoid_citeseer")["n"].any()
    assert of(table_of(number, on_words + former), "planetoid_citeseer").empty
    failed = seeds([0.6], dataset="citeseer", error="ConfigError: no file", **own)
    assert not of(table_of(number, failed + on_words), "citeseer").empty


def test_tests_are_corrected_over_the_table() -> None:
    records = seeds([0.6, 0.62, 0.67]) + seeds([0.7, 0.8, 0.84], dataset="pubmed")
    tested = table_of(3, records).cells.dropna(subset="p")
    assert list(tested["p_holm"]) == holm(list(tested["p"]))
    assert len(tested) == 6


@pytest.mark.parametrize(("form", "name"), [("markdown", "table.md"), ("latex", "table.tex")])
def test_a_table_is_the_golden_file(form: Form, name: str) -> None:
    text = show(everything(), form)
    assert text == golden(name, text)


def test_csv_is_the_golden_file() -> None:
    text = to_frame(everything()).to_csv(index=False)
    found, expected = (pd.read_csv(io.StringIO(of)) for of in (text, golden("table.csv", text)))
    pd.testing.assert_frame_equal(found, expected)


def test_a_time_has_quartiles_and_a_factor_alone_in_every_format() -> None:
    one_step: dict[str, dict[str, Any]] = {"solver": {"num_steps": 1}}
    table = table_of(7, [timed(0.0049, settings=one_step)])
    latex = show(table, "latex")
    assert all(of in latex for of in ("4.90 (4.41–5.39)", r"RTX 3090 & 9.8", "×0.50"))
    assert latex.count(r"\begin{tabular}") == 2
    (line,) = to_frame(table).query("state == 'measured'").to_dict("records")
    assert (line["mean"], line["q1"], line["q3"]) == pytest.approx((4.9, 4.41, 5.39))
    assert (line["printed_mean"], line["factor"]) == (9.8, pytest.approx(0.5))
    assert pd.isna([line[key] for key in ("difference", "deviations", "p", "rank")]).all()
    smoke = table_of(7, [timed(scale="smoke", settings=one_step)], scale="smoke")
    assert to_frame(smoke)["factor"].isna().all()


def test_an_mlp_that_other_runs_trained_is_named_below_a_table() -> None:
    about: dict[str, Any] = {"experiment": "mlp", "model": "mlp", "flow": None, "attacks": ()}
    mlp = [finished(0.6 + seed / 50, seed=seed, **about) for seed in (0, 1)]
    (line,) = [line for line in table_of(3, [finished(), *mlp]).lines if "MLP" in line]
    assert line == "An MLP, which sees no edge, reaches 61.00 ± 1.41 on Cora."
    elsewhere = [finished(0.6, dataset="coauthor", **about)]
    assert not any("MLP" in line for line in table_of(3, [finished(), *elsewhere]).lines)
