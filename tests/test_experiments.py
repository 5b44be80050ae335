"""What is published is made of the published records."""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from robust_diffusion.paper.layout import load_layout
from robust_diffusion.records import read_records
from robust_diffusion.records.identity import cell_id
from robust_diffusion.records.records import Record, latest_by_cell
from robust_diffusion.results.leaderboard.board import boards, published
from robust_diffusion.results.worst_case import recorded_on, show_worst_cases
from robust_diffusion.system.arithmetic import PORTABLE, named_in
from tests.paper.records import failed, finished, reference
from tests.paper.tables import build_table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results"


@cache
def script(name: str) -> ModuleType:
    path = ROOT / "experiments" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def publish() -> ModuleType:
    return script("publish")


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return read_records(RESULTS / "records.jsonl.gz")


def test_the_headline_of_the_readme_is_what_the_records_say(records: list[Record]) -> None:
    page = (RESULTS.parents[1] / "README.md").read_text()
    rows = re.findall(r"^\| (Beltrami|GRAND|MLP)\b.*?\|(.*)\|$", page, re.MULTILINE)
    cells = latest_by_cell(records)
    asked = {r["cell"] for r in records if r["experiment"] == "successors"}
    for name, numbers in rows:
        own = [
            cells[cell]
            for cell in asked
            if (cells[cell]["flow"] or cells[cell]["model"]) == name.lower()
            and cells[cell]["seed"] < 5
        ]
        found = []
        for threat, attack in [("black_box", a) for a in ("clean", "speit", "tdgia", "auto")] + [
            ("white_box", "auto")
        ]:
            values = [r["accuracy"][attack] for r in own if r["threat"] == threat]
            assert len(values) == 5, (name, threat)
            found.append(f"{100 * sum(values) / 5:.2f}")
        assert [number.strip() for number in numbers.split("|")] == found, name
    assert len(rows) == 3


def test_the_picture_shows_the_published_means() -> None:
    means = script("picture").mean_accuracy()
    view = (RESULTS / "table-3-paper.md").read_text(encoding="utf-8")
    for flow in ("heat", "grand", "mean_curvature", "beltrami"):
        assert all(f"{mean:.2f} ±" in view for mean in means[flow].values())


def test_every_file_that_the_readme_lists_is_there() -> None:
    table = (ROOT / "experiments" / "README.md").read_text(encoding="utf-8").split("## ")[3]
    patterns = re.findall(r"`([\w<>-]+\.(?:md|html|jsonl\.gz))`", table)
    assert len(patterns) > 20
    for pattern in patterns:
        assert list(RESULTS.glob(re.sub(r"<\w+>", "*", pattern))), pattern


def test_one_number_has_one_value_on_all_pages(records: list[Record]) -> None:
    tables = [
        show_worst_cases(recorded_on(records, [name])).cells
        for name in ("worst-case", "worst-case-models", "successors")
    ]
    found: dict[str, tuple[str, ...]] = {}
    columns = ["seeds", "clean", "chance", "transfer", "from", "white box", "worst", "above MLP"]
    for row in (row for table in tables for row in table.to_dict("records")):
        shown = tuple(str(row[column]) for column in columns)
        assert found.setdefault(row["model"], shown) == shown
    (board,) = boards(published(records), [])
    assert {row.model for row in board.rows} < found.keys()
    for entry in board.rows:
        numbers = (entry.seeds, entry.clean, entry.worst, entry.flags)
        shown = found[entry.model]
        worst = shown[6].split(" ")
        assert (str(numbers[0]), f"{numbers[1]:.2f}", f"{numbers[2]:.2f}") == (
            *shown[:2],
            worst[0],
        )
        assert bool(entry.flags) == ("!" in worst)


@pytest.fixture
def budgets() -> list[Record]:
    """A cell of each model and budget of the picture; GNNGuard's curve is flat."""
    module, flows = script("picture"), {"grand", "mean_curvature", "beltrami", "uniform_modulation"}
    return [
        finished(
            0.8,
            0.6 if model in ("mlp", "gnn_guard") else 0.7 / nodes,
            model="graph_pde" if model in flows else model,
            flow=model,
            attacks=("auto",),
            budget=(nodes, edges),
            experiment="budget-curve",
            threat="white_box",
            split="a",
        )
        for model, edges, nodes in product(["mlp", *module.CURVES], module.EDGES, module.NODES)
    ]


@pytest.mark.slow
def test_accuracy_against_budget_is_drawn_alike_each_time(
    budgets: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, drawn = script("picture"), []
    monkeypatch.setattr(module, "PICTURES", tmp_path)
    monkeypatch.setattr(module, "read_records", lambda _: budgets)
    monkeypatch.setattr(sys, "argv", ["picture.py", "budget"])
    for _ in range(2):
        module.main()
        drawn.append((tmp_path / "accuracy_against_budget.svg").read_text(encoding="utf-8"))
    assert drawn[0] == drawn[1]
    for text in ("Beltrami 1", "GNNGuard 60", "MLP 60", "4 edges per injected node"):
        assert f"<!-- {text} -->" in drawn[0]
    assert "hollow marks are no bounds" in drawn[0]


@pytest.mark.slow
def test_certified_beside_attacked_accuracy_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = script("picture")
    monkeypatch.setattr(module, "PICTURES", tmp_path)
    monkeypatch.setattr(module, "CERTIFICATES", tmp_path)
    monkeypatch.setattr(sys, "argv", ["picture.py", "certificates"])
    with pytest.raises(SystemExit, match=r"holds no certificate\.json"):
        module.main()
    curve = [{"budget": n, "certified": 0.8 - n / 10, "attacked": 0.9} for n in range(3)]
    shares = {"plain_accuracy": 0.9, "clean_accuracy": 0.9, "abstained": 0.1, "curve": curve}
    shares |= {"options": {"samples": 70, "p_e": 0.5}, "num_targets": 10, "radius": 2.5}
    for scheme, unit in (("sparse", "flipped edges"), ("bi_smoothing", "injected nodes")):
        for model in ("beltrami", "mlp"):
            report = {"certificate": scheme, "unit": unit, **shares}
            for folder in (f"{model}-{scheme}", f"tradeoff/{model}-{scheme}-0.5"):
                (tmp_path / folder).mkdir(parents=True)
                (tmp_path / folder / "certificate.json").write_text(json.dumps(report))
    module.main()
    drawn = (tmp_path / "certified_accuracy.svg").read_text(encoding="utf-8")
    for text in ("Beltrami", "MLP", "flipped edges", "injected nodes"):
        assert f"<!-- {text} -->" in drawn
    monkeypatch.setattr(sys, "argv", ["picture.py", "tradeoff"])
    module.main()
    drawn = (tmp_path / "certified_radius.svg").read_text(encoding="utf-8")
    for text in ("Beltrami", "MLP", "0.5", "average certified radius in flipped edges"):
        assert f"<!-- {text} -->" in drawn


def test_a_picture_without_all_of_its_records_is_one_line(
    budgets: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = [cell for cell in budgets if cell["model"] != "gcn"]
    with pytest.raises(SystemExit, match=r"lacks 10 points .* gcn with 4 edges of each of 1 nodes"):
        script("picture").curves(lacking)
    with pytest.raises(SystemExit, match="lacks 80 points of experiment=budget-curve"):
        script("picture").curves([])


def test_published_configurations_have_the_ids_of_their_cells(records: list[Record]) -> None:
    # Else who runs the same again would not find it done.
    cells = [record for record in records if "config" in record]
    assert cells
    assert [cell_id(record["config"]) for record in cells] == [record["cell"] for record in cells]


def test_published_records_are_whole_and_clean(records: list[Record]) -> None:
    finished_cells = set()
    for record in records:
        if "reference" in record:
            assert record["cell"] in finished_cells
            continue
        finished_cells.add(record["cell"])
        assert "error" not in record
        if "accuracy" in record:
            assert named_in(record["processor"]) == PORTABLE
        assert record["revision"]
        assert not record["revision"].endswith("-dirty")
        values = record.get("accuracy", {"none": 0.5}).values()
        assert 0 <= min(values) <= max(values) <= 1
    assert finished_cells


@pytest.mark.slow
def test_published_views_are_what_the_records_say() -> None:
    # In a process of its own, since the type checker of the tests takes longer than the views.
    command = [sys.executable, str(ROOT / "experiments" / "publish.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_study_of_rounding_is_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = script("rounding/rounding")
    monkeypatch.setattr(sys, "argv", ["rounding.py", "--check"])
    module.main()
    monkeypatch.setattr(module, "VIEW", tmp_path / "rounding.md")
    module.VIEW.write_text("another view")
    with pytest.raises(SystemExit, match=r"rounding\.md: differs"):
        module.main()


def test_crossed_networks_and_graphs_are_what_was_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = script("crossed/crossed")
    monkeypatch.setattr(sys, "argv", ["crossed.py", "--check"])
    with pytest.raises(SystemExit) as caught:
        module.main()
    assert caught.value.code is None
    study = {"accuracy": {"0": {"0": 0.2, "1": 0.4}, "1": {"0": 0.4, "1": 0.6}}}
    names = {"model": "gat", "flow": None, "dataset": "d", "fidelity": "paper", "attack": "tdgia"}
    text = module.view(study | names)
    assert "networks 50 %, graphs 50 %, their interaction 0 %" in text
    assert text.rstrip().endswith("40.00 |")


def test_rounding_counts_points_and_means_over_seeds() -> None:
    common = {"dataset": "cora", "fidelity": "paper", "test_graph": "clean"}
    found = [("a", 0.8, 0.81), ("a", 0.8, 0.77), ("b", 0.5, 0.5)]
    rows = [common | {"setting": s, "first": f, "second": g} for s, f, g in found]
    row = script("rounding/rounding").view(pd.DataFrame(rows)).splitlines()[-1]
    numbers = [cell.strip() for cell in row.strip("|").split("|")[3:]]
    assert numbers == ["3", "1.00", "2.60", "3.00", "67%", "0.50", "1.00"]


def test_views_that_the_records_do_not_make_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = publish()
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    right, wrong, missing, strange = (tmp_path / f"{name}.md" for name in "abcd")
    for path in (right, wrong, strange):
        path.write_text("text")
    found = list(module.outdated({right: "text", wrong: "other", missing: "text"}))
    assert [line.partition(":")[0] for line in found] == [str(wrong), str(missing), str(strange)]
    assert [line.endswith(("`make publish`", "remove it")) for line in found] == [True] * 3


def test_budgets_are_published_with_what_speaks_against_them() -> None:
    white_box = {"experiment": "budget-curve", "threat": "white_box", "split": "a"}
    records = [
        finished(0.8, 0.7, model=model, budget=(nodes, 4), attacks=("auto",), **white_box)
        for model in ("gcn", "mlp")
        for nodes in (1, 50)
    ]
    ((name, table),) = publish().studies(records)
    assert name == "budget-curve"
    title, _, *rows, _, note = publish()._as_markdown(table).splitlines()
    assert title.startswith("**experiment=budget-curve.** cora: lowest accuracy in %")
    assert [row.split("|")[-2].strip() for row in rows] == ["50", "------:", "70.00 !", "70.00"]
    assert note.startswith("- ! gcn, 4 edges each: not a bound: budget_without_effect: 70.00 %")


def test_worst_cases_are_published_by_experiment() -> None:
    names = ("worst-case", "worst-case-models", "worst-case-splits", "worst-case-graphs")
    asked = {
        name: {"threat": "white_box", "split": "a", "experiment": name}
        for name in (*names, "single-attacks")
    }
    records = [
        finished(0.8, 0.2, flow=flow, attacks=("auto",), cell=name + flow, **options)
        for name, options in asked.items()
        for flow in ("beltrami", "uniform_modulation")
    ]
    first = finished(attacks=(), experiment="other", flow="grand", cell="rate", overrides={})
    second = finished(attacks=(), experiment="grand-rate", flow="grand", cell="0.5")
    second["overrides"] = {"flow.rate": "0.5"}
    again = reference(first, "grand-rate") | {"overrides": {"flow.rate": "0.1"}}
    made = dict(publish().studies([*records, first, again, second]))
    assert set(made) == {*asked, "grand-rate", "beltrami-uniform"}
    assert list(made["worst-case-graphs"].cells["by"]) == ["auto (white box)"] * 2
    assert list(made["beltrami-uniform"].cells["accuracy"]) == ["clean", "worst"]
    # The line of the experiment that is shown says how it asked.
    assert list(made["grand-rate"].cells["flow.rate"]) == ["0.1", "0.5"]


def experiments(records: list[Record]) -> list[tuple[str, bool]]:
    """Of each line its experiment, and True if it is a reference."""
    return [(record["experiment"], record.get("reference", False)) for record in records]


def test_what_is_published_is_each_finished_cell_once() -> None:
    old, new = finished(0.5, cell="a"), finished(0.7, cell="a")
    wrong = failed(cell="b")
    asked = [reference(new, "table-1"), reference(new, "table-1"), reference(wrong, "table-1")]
    published = list(publish().publishable([old, new, wrong, *asked]))
    assert experiments(published) == [("table-3", False), ("table-1", True)]
    assert published[0]["accuracy"]["clean"] == 0.7


def test_a_record_comes_before_every_reference_to_it() -> None:
    old, new = finished(0.5, cell="a"), finished(0.5, cell="a", revision="new")
    published = list(publish().publishable([old, reference(old, "table-1"), new]))
    assert [r.get("revision") for r in published] == ["new", None, None]
    # The last two only say in which order the cell was asked for.
    assert [r["experiment"] for r in published] == ["table-3", "table-1", "table-3"]


def test_publishing_keeps_the_variant_that_was_asked_for_last() -> None:
    whole = finished(0.8, cell="whole")
    short = finished(0.3, cell="short", settings={"training": {"max_epochs": 5}})
    records = [whole, short, reference(whole, "table-3")]

    def shown(of: list[Record]) -> list[float | None]:
        return [entry.mean for _, _, entry in build_table(load_layout(3), of)]

    published = list(publish().publishable(records))
    assert 80.0 in shown(records)
    assert shown(published) == shown(records)
    assert list(publish().publishable(published)) == published


def test_a_cell_that_another_experiment_ran_again_stays_in_the_first_one() -> None:
    old, new = finished(0.5, cell="a"), finished(0.7, cell="a", experiment="readings")
    published = list(publish().publishable([old, new]))
    asked = [("readings", False), ("table-3", True), ("readings", True)]
    assert experiments(published) == asked


def test_unreadable_records_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, before = tmp_path / "odd.jsonl", (RESULTS / "records.jsonl.gz").read_bytes()
    path.write_text(json.dumps(finished(cell="c0ffee") | {"accuracy": {"clean": None}}))
    for named in (path, tmp_path / "missing.jsonl"):
        monkeypatch.setattr(sys, "argv", ["publish.py", str(named)])
        with pytest.raises(SystemExit, match=named.name):
            publish().main()
    assert (RESULTS / "records.jsonl.gz").read_bytes() == before


@pytest.mark.slow
def test_a_published_cell_is_run_again(cli: Callable[..., Any]) -> None:
    outcome = cli(
        "-m", "experiment=demo", "scale=smoke", "flow=heat", "seed=1", "logger=none", "attack=speit"
    )
    Path("published.jsonl").write_text(json.dumps(outcome.records[0]))
    command = [sys.executable, str(ROOT / "experiments" / "reproduce.py"), "--cells", "1"]
    command += ["--records", "published.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    expected = "(demo, synthetic, heat, paper, seed 1): the same accuracies\n"
    assert done.stdout.endswith(expected), done.stderr
    assert done.returncode == 0


Again = Callable[[Record | None], tuple[str, Any]]


@pytest.fixture
def again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Again:
    """Compares a published cell with what running it again leaves: what is said, and the exit."""
    path = tmp_path / "published.jsonl"
    path.write_text(json.dumps(PUBLISHED))
    module = script("reproduce")

    def compared(found: Record | None) -> tuple[str, Any]:
        monkeypatch.setattr(module, "_run", lambda *_: found)
        monkeypatch.setattr(sys, "argv", ["reproduce.py", "--records", str(path)])
        try:
            module.main()
        except SystemExit as end:
            return capsys.readouterr().out, end.code
        return capsys.readouterr().out, 0

    return compared


PUBLISHED = finished(0.5, cell="a", attacks=(), processor="an abacus")
FURTHER = PUBLISHED | {"accuracy": {"clean": 0.48}}
ELSEWHERE = PUBLISHED | {"accuracy": {"clean": 0.51}, "processor": "a slide rule"}
NAME = "a (table-3, cora, beltrami, paper, seed 0): "


@pytest.mark.parametrize(
    ("found", "said", "end"),
    [
        (PUBLISHED, "the same accuracies", 0),
        (FURTHER, "clean -2.00", "1 further than 1.5 points away: a"),
        (ELSEWHERE, "clean +1.00; recorded on an abacus, now on a slide rule", 0),
        (
            PUBLISHED | {"cell": "b"},
            "its options are other ones today, which give another cell",
            "1 of other options today: a",
        ),
        (failed(cell="a"), failed()["error"], "1 did not run: a"),
        (None, "left no record", "1 did not run: a"),
    ],
)
def test_a_cell_that_was_run_again_is_compared(
    again: Again, found: Record | None, said: str, end: object
) -> None:
    assert again(found) == (f"{NAME}{said}\n", end)


def test_a_cell_is_run_again_with_the_edge_values_that_it_had(tmp_path: Path) -> None:
    data = {"edge_values": "ids"}
    overrides = {"dataset": "coauthor", "seed": "0", "logger": "wandb"}
    record = {"overrides": overrides, "config": {"threads": 2, "data": data}, "backend": "torch"}
    command = script("reproduce")._command
    assert command(record, tmp_path)[3:] == [
        "dataset=coauthor",
        "seed=0",
        "fidelity.edge_values=ids",
        "hydra.mode=RUN",
        "logger=none",
        f"paths.outputs={tmp_path}",
        "threads=2",
        "backend=torch",
    ]
    del data["edge_values"]  # as records of before have none
    assert "fidelity.edge_values=ones" in command(record, tmp_path)
    assert not any("seeding" in given for given in command(record, tmp_path))
    record["config"]["threat"] = {"surrogates": {"gcn": {}}}
    assert "threat.seeding=cell" in command(record, tmp_path)


def test_a_cell_is_run_again_in_the_arithmetic_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = script("reproduce")._environment
    for variable, value in PORTABLE.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert environment({"processor": "an abacus, AVX2"}).keys().isdisjoint(PORTABLE)
    assert environment({}).keys().isdisjoint(PORTABLE)
    older = environment({"processor": "an abacus, AVX2, MKL_CBWR=COMPATIBLE, HOME=/"})
    assert {key: older[key] for key in PORTABLE.keys() & older} == {"MKL_CBWR": "COMPATIBLE"}
    assert older["HOME"] == "/home/somebody"


def test_nothing_tells_where_a_cell_ran() -> None:
    (published,) = publish().publishable([finished()])
    assert published["config"]["data"]["source"]["folder"] == {"path": "cora"}
