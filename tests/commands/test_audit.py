import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from safetensors.torch import save_file
from torch import nn
from torch_geometric.nn import models as pyg

from robust_diffusion import Budget, evaluate, load_model, open_dataset
from robust_diffusion.attacks import FGSM
from robust_diffusion.data.normalize import feature_scale
from robust_diffusion.data.sources import citation_like_graph
from robust_diffusion.evaluation.zoo import Zoo
from robust_diffusion.models import GCN
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.artifact import Artifact
from tests.conftest import TINY_DATA
from tests.drawn import CLASSES, FEATURES, drawn_data
from tests.paper.records import archived
from tests.results.worst_cases import record
from tests.test_experiments import script
from tests.zoo import BUDGET as BOARD
from tests.zoo import trained

Cli = Callable[..., Any]
GRAPH = citation_like_graph(200, 400, 16)
GRAPH.x = feature_scale(GRAPH.x).normalize(GRAPH.x)
EASY = GRAPH.index_test_easy
BUDGET = [
    "budget.max_injected_nodes=3",
    "budget.max_edges_per_injected_node=4",
    "budget.feature_limits=[-0.9,0.9]",
]


def write_injection(
    folder: Path, *, value: float = 0.5, to: torch.Tensor = EASY, weight: float = 1.0
) -> Path:
    """Three new nodes with four edges each, as GRB keeps them."""
    folder.mkdir(parents=True, exist_ok=True)
    row, col = np.repeat(np.arange(3), 4), to[:12].numpy()
    sp.save_npz(
        folder / "adj.npz", sp.csr_matrix((np.full(12, weight), (row, col)), shape=(3, 203))
    )
    np.save(folder / "features.npy", np.full((3, 16), value, dtype=np.float32))
    return folder


Audit = Callable[..., tuple[int, list[tuple[str, str]]]]


@pytest.fixture
def audit(cli: Cli) -> Audit:
    """The exit status of an audit, and level and code of each violation."""

    def run(*arguments: Any) -> tuple[int, list[tuple[str, str]]]:
        outcome = cli("audit", *TINY_DATA, *BUDGET, *map(str, arguments))
        rows = outcome.table if "|" in outcome.out else []
        return outcome.status, [(row["level"], row["code"]) for row in rows]

    return run


@pytest.mark.parametrize(
    ("file", "options", "expected"),
    [
        ({}, [], (0, [])),
        ({"value": 0.95}, [], (1, [("error", "feature_limits")])),
        ({}, ["budget.max_injected_edges=11"], (1, [("error", "injected_edges")])),
        ({"to": GRAPH.index_test_hard}, [], (0, [("warning", "not_a_target")])),
        ({"to": GRAPH.index_test_hard}, ["difficulty=hard"], (0, [])),
    ],
)
def test_a_graph_of_grbs_files_is_judged_by_its_budget_and_targets(
    audit: Audit, tmp_path: Path, file: Any, options: list[str], expected: Any
) -> None:
    # A path with an equals sign is a path.
    assert audit(write_injection(tmp_path / "seed=0", **file), *options) == expected


def test_entries_of_the_store_are_judged(audit: Audit, tmp_path: Path) -> None:
    x, store = torch.cat([GRAPH.x, torch.full((1, 16), 0.25)]), ArtifactStore(tmp_path / "store")
    new = torch.stack([torch.full((4,), 200), EASY[:4]])
    twice = torch.cat([GRAPH.edge_index, new, new.flip(0), new, new.flip(0)], 1)
    store.get_or_compute("graph", {}, lambda: Artifact({"x": x, "edge_index": twice}))
    store.get_or_compute("victim", {}, lambda: Artifact({"w": torch.ones(1)}))
    assert audit(tmp_path / "store") == (1, [("error", "duplicate_edge")])


def test_a_saved_report_has_its_own_clean_graph_targets_and_budget(cli: Cli) -> None:
    options: dict[str, Any] = {"attacks": "random", "targets": [1, 2, 3], "progress": False}
    report = evaluate(
        GCN(FEATURES, 8, out_channels=CLASSES), drawn_data(), budget=Budget(2, 3), **options
    )
    replace(report, budget=replace(report.budget, max_injected_nodes=1)).save("less")
    report.save("own")
    said = "injection on the clean graph of own, 3 target nodes; within"
    assert said in cli("audit", "own").out
    outcome = cli("audit", "less", "own")
    assert (outcome.status, "injected_nodes" in outcome.out) == (1, True)
    for name in ("graph-other.safetensors", "adj.npz"):
        Path("own", name).write_text("")
    assert cli("audit", "own").status == 0  # of the graphs of the report alone


def saved(folder: str, of: nn.Module, **claims: Any) -> None:
    """Save a report on the synthetic dataset, with some fields of its file replaced."""
    budget, options = Budget(5, 20), {"attacks": "random", "progress": False}
    evaluate(of, open_dataset("synthetic"), budget=budget, **options).save(folder)
    path = Path(folder, "report.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | claims))


def test_a_report_is_measured_again_on_the_model_of_the_zoo(cli: Cli, zoo_folder: Path) -> None:
    model = load_model("gcn", "synthetic", directory=zoo_folder)
    saved("good", model)
    saved("bad", model, clean_accuracy=0.02)
    saved("other", model, dataset="cora")
    saved("unknown", trained(open_dataset("synthetic"), epochs=1))
    outcome = cli("audit", "good", "--zoo", str(zoo_folder))
    assert (outcome.status, "accuracy in %" in outcome.out) == (0, True)
    assert cli("audit", "bad", "--zoo", str(zoo_folder)).status == 1
    outcome = cli("audit", "unknown", "--zoo", str(zoo_folder))
    assert (outcome.status, "not measured" in outcome.out) == (0, True)


CONTRADICTIONS: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda r: r["attacks"][1]["spent"].update(injected_edges=1), "attacks.fgsm.spent.injected_e"),
    (lambda r: r["attacks"][0]["spent"].update(feature_range=[0, 1]), "spent.feature_range"),
    (lambda r: r["attacks"][1].update(is_bound=not r["attacks"][1]["is_bound"]), "is_bound"),
    (lambda r: r.update(robust_accuracy=0.99), "robust_accuracy: expected"),
    (lambda r: r["attacks"].pop(0), "random: expected as a control"),
    (lambda r: r["attacks"].pop(1), "graph-fgsm.safetensors: expected its attack in"),
    (lambda r: r["attacks"][1].update(flags=[]), "flags, dropped"),
    (lambda r: r.update(flags=[{"code": "diverged", "detail": "x"}]), "flags, added"),
]
"""What an author may change in a report, and what the audit says of it."""


def test_what_a_report_says_is_counted_and_measured_again(cli: Cli, zoo_folder: Path) -> None:
    model, data = load_model("gcn", "synthetic", directory=zoo_folder), open_dataset("synthetic")
    weak = {"attacks": FGSM(num_steps=1, step_size=1e-6), "progress": False}
    report = evaluate(model, data, budget=Budget(5, 20), **weak)
    assert report["fgsm"].flags
    report.save("forged")
    path = Path("forged", "report.json")
    honest = path.read_text()
    outcome = cli("audit", "forged", "--zoo", str(zoo_folder))
    assert outcome.status == 0, outcome.out
    assert not any(words in outcome.out for _, words in CONTRADICTIONS)
    for change, words in CONTRADICTIONS:
        content = json.loads(honest)
        change(content)
        path.write_text(json.dumps(content))
        outcome = cli("audit", "forged", "--zoo", str(zoo_folder))
        assert (outcome.status, words in outcome.out) == (1, True), outcome.out


def test_attacks_of_other_names_and_on_surrogates_are_no_contradiction(
    cli: Cli, zoo_folder: Path
) -> None:
    data = open_dataset("synthetic")
    model, other = load_model("gcn", "synthetic", directory=zoo_folder), trained(data, epochs=1)
    attacks = {"mine": FGSM(num_steps=2), "speit": "speit", "flip": "random_flip"}
    budget = Budget(5, 20, edge_ratio=0.05)
    options: dict[str, Any] = {"budget": budget, "attacks": attacks, "progress": False}
    evaluate(model, data, surrogates=[other], threat="adaptive", **options).save("r")
    outcome = cli("audit", "r", "--zoo", str(zoo_folder))
    assert outcome.status == 0, outcome.out


def test_other_targets_and_graphs_of_your_own_are_no_contradiction(
    cli: Cli, zoo_folder: Path
) -> None:
    model, data = load_model("gcn", "synthetic", directory=zoo_folder), open_dataset("synthetic")
    options = {"budget": Budget(5, 20), "attacks": "random", "progress": False}
    evaluate(model, data, targets=data.target_nodes[:50], **options).save("fewer")
    saved("own", model, dataset="mine")
    saved("false", model, dataset="synthetic", clean_graph="0" * 64)
    for folder, words in (("fewer", "other target nodes"), ("own", "mine, whose graph is not")):
        outcome = cli("audit", folder, "--zoo", str(zoo_folder))
        assert (outcome.status, words in outcome.out) == (0, True)
    assert cli("audit", "false", "--zoo", str(zoo_folder)).status == 1


def test_a_report_is_measured_again_on_a_model_of_the_user(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    model = trained(open_dataset("synthetic"), epochs=1)
    saved("own", model, model="evil.Model")  # what a report names is not imported
    save_file(model.state_dict(), "own.safetensors")
    given = ["audit", "own", "--model=my_module.build"]
    assert cli(*given, "--weights=own.safetensors").status == 0
    with torch.no_grad():
        next(model.parameters()).zero_()
    save_file(model.state_dict(), "other.safetensors")
    outcome = cli(*given, "--weights=other.safetensors")
    assert (outcome.status, "not the weights of the report" in outcome.err) == (1, True)
    assert cli(*given).status == 2


def test_arguments_of_the_users_model_are_given(cli: Cli) -> None:
    model = pyg.GCN(FEATURES, 8, 2, CLASSES)
    evaluate(model, drawn_data(), budget=Budget(2, 3), attacks="random", progress=False).save("r")
    save_file(model.state_dict(), "own.safetensors")
    named = ["--model=torch_geometric.nn.models.GCN", "--weights=own.safetensors"]
    options = ["model.hidden_channels=8", "model.num_layers=2"]
    outcome = cli("audit", "r", *named, *options)
    assert (outcome.status, "accuracy in %" in outcome.out) == (0, True)


MODULE = """
from robust_diffusion.evaluation.zoo import build_recorded
from tests.zoo import CONFIG


def build(in_channels, out_channels):
    return build_recorded(CONFIG, in_channels, out_channels, where="mine")
"""


@pytest.mark.parametrize(
    "stray",
    ["nowhere", "no_graph", "budget.epsilon=0", "+max_injected_nodes=5", "flow=heat", "seed=1"],
)
def test_what_cannot_be_read_and_what_it_does_not_read_are_named(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stray: str
) -> None:
    monkeypatch.setenv("ROBUST_DIFFUSION_DATA", str(tmp_path / "data"))
    (tmp_path / "no_graph").mkdir()
    (tmp_path / "no_graph" / "adj.pkl").write_bytes(pickle.dumps(3))
    result = str(write_injection(tmp_path / "result"))
    assert stray.lstrip("+") in cli("audit", *TINY_DATA, *BUDGET, result, stray).error
    assert "grb-cora" in cli("audit", result, "dataset=cora").error  # is not downloaded


def on_board(zoo: Path, accuracy: float = 0.95) -> str:
    """Return an archive of the published run of the zoo's model."""
    (entry,) = Zoo.open(zoo).entries
    run = record("gcn", clean=entry.clean_accuracy, auto=accuracy, budget=(5, 20))
    limits = run.budget.bounds | {"feature_limits": [-0.87, 0.87]}
    return archived(run | {"run": entry.run, "dataset": entry.dataset, "budget": limits})


def test_a_verified_graph_lowers_its_entry_and_keeps_the_earlier_number(
    cli: Cli, zoo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo = Path(shutil.copytree(zoo_folder, tmp_path / "zoo"))
    model, data = load_model("gcn", "synthetic", directory=zoo), open_dataset("synthetic")
    options: dict[str, Any] = {"attacks": "fgsm", "progress": False}
    for name, budget in (("mine", BOARD), ("wide", replace(BOARD, feature_limits=(-0.9, 0.9)))):
        evaluate(model, data, budget=budget, **options).save(name)
    shutil.copytree("mine", "forged")
    path = Path("forged", "report.json")
    path.write_text(path.read_text().replace('"robust_accuracy": 0.', '"robust_accuracy": 0.0'))
    enter = ("--zoo", str(zoo), "--records", on_board(zoo), "--enter")

    outcome = cli("audit", "forged", *enter, "Ada")
    assert (outcome.status, "what to do: save the report again" in outcome.out) == (1, True)
    outcome = cli("audit", "wide", *enter, "Ada")
    assert (outcome.status, "attack within the budget of the board" in outcome.out) == (1, True)
    assert "author" in cli("audit", "mine", *enter, "<b>Ada</b>").err
    assert not Zoo.open(zoo).entries[0].submissions

    outcome = cli("audit", "mine", *enter, "Ada Lovelace")
    assert (outcome.status, "entered as Ada Lovelace's" in outcome.out) == (0, True)
    (submission,) = Zoo.open(zoo).entries[0].submissions
    assert (submission.earlier, submission.earlier_attack) == (0.95, "auto (white box)")
    outcome = cli("audit", "mine", *enter, "Ada Lovelace")
    assert (outcome.status, "and the board has" in outcome.out) == (1, True)

    monkeypatch.setenv("ROBUST_DIFFUSION_ZOO", str(zoo))
    (row,) = cli("leaderboard", "--records", on_board(zoo)).table
    assert (row["5x20"], row["by"]) == (f"{100 * submission.accuracy:.2f}", "Ada Lovelace: fgsm")
    opened = Zoo.open(zoo)
    row = script("make_zoo")._checked_submission(opened, opened.entries[0], submission)
    assert row["found"] == "as recorded"


def test_a_model_outside_of_the_zoo_has_no_entry_to_lower(cli: Cli, zoo_folder: Path) -> None:
    saved("other", trained(open_dataset("synthetic"), epochs=1))
    outcome = cli("audit", "other", "--zoo", str(zoo_folder), "--enter", "Ada")
    assert (outcome.status, "no model of the zoo" in outcome.err) == (1, True)
