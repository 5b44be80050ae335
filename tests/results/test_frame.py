"""The frame of recorded results, and names of models in a sweep over their settings."""

import warnings
from typing import Any

import pandas as pd
import pytest
from omegaconf import OmegaConf

from robust_diffusion.errors import ConfigError
from robust_diffusion.records import Record
from robust_diffusion.records.identity import RETIRED
from robust_diffusion.records.records import by_experiment
from robust_diffusion.results.comparison import compare_worst_cases
from robust_diffusion.results.frame import COLUMNS, frame, named_by_settings
from robust_diffusion.results.worst_case import show_worst_cases
from tests.configs import composed
from tests.paper.records import also_asked, failed, finished, timed


def record(cell: str, seed: int = 0, split: int | None = None, **config: Any) -> Record:
    model = {"flow": {"rate": 1.0}, "num_layers": 2} | config.pop("model", {})
    own = {"run": cell, "seed": seed, "split": str(split), "flow": "grand", "budget": (5, 4)}
    made = finished(0.8, {"auto": config.pop("auto", 0.4)}, threat="white_box", **own)
    training = {"adversary": config.pop("adversary", {})}
    data = {"source": {"split_seed": split}, **config}
    return made | {"config": {"model": model, "training": training, "data": data}}


def names(*records: Record) -> list[str]:
    return list(named_by_settings(frame(records)).drop_duplicates("run")["model"])


def test_the_frame_has_a_row_per_cell_and_graph() -> None:
    records = [
        finished(0.8, {"speit": 0.4}, flags={"speit": ["budget_unspent"]}),
        failed(seed="x", budget=(-1, 10**400)),
        timed(0.01, seed=2),
    ]
    found = frame([records[0], *records])
    assert dict(found[list(COLUMNS)].dtypes.astype(str)) == {
        k: str(pd.Series(dtype=t).dtype) for k, (t, _) in COLUMNS.items()
    }
    assert list(found["attack"].fillna("-")) == ["clean", "speit", "-", "clean"]
    assert list(found["accuracy"].fillna(0)) == [0.8, 0.4, 0, 0]
    assert list(found["transfer"].fillna(0)) == [0, 0.4, 0, 0]
    assert list(found["seconds"].fillna(0)) == [0, 0, 0, 0.01]
    assert (found["flags"][1], found["surrogates"][1], found["nodes"][1]) == (
        {"budget_unspent"},
        "gcn",
        50,
    )
    assert found["error"][2] == "loss is not finite"
    assert frame([]).empty


@pytest.mark.parametrize("wrong", ["records.jsonl", None, {"run": "a"}, [None]])
def test_what_holds_no_records_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"^records: expected"):
        frame(wrong)


def test_a_run_belongs_to_every_experiment_that_asked_for_it() -> None:
    shared, alone = finished(seed=0), finished(seed=1, experiment="table-9")
    records = [also_asked(shared, "table-9"), alone, finished(seed=2, experiment="none")]
    rows = frame(records).explode("experiments")
    for name, runs in by_experiment(records).items():
        asked = rows[rows["experiments"] == name] if name != "none" else rows[rows["seed"] == 2]
        assert {*asked["run"]} == {run.run for run in runs}
        assert len(asked) == 3 * len(runs)


def test_a_column_is_added_to_a_wide_frame_without_a_warning() -> None:
    wide = {f"option_{i}": i for i in range(150)}
    rows = frame([record("a", model={"flow": wide}), record("b")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows["own"] = 1


def test_a_setting_in_which_runs_differ_is_a_column_of_its_type() -> None:
    runs = [record("a"), record("b", model={"flow": {"rate": 0.5}}), record("c", degree_leak=True)]
    found = frame(runs)
    assert found.columns.difference(list(COLUMNS)).tolist() == ["data.degree_leak", "flow.rate"]
    assert found.groupby("flow.rate")["run"].nunique().to_dict() == {0.5: 1, 1.0: 2}
    listed = frame([runs[0], record("d", model={"flow": {"order": [2, 1]}})])
    assert listed.groupby("flow.order")["run"].nunique().to_dict() == {(2, 1): 1}


@pytest.mark.parametrize(
    ("changed", "default", "named"),
    [
        ({"model": {"flow": {"rate": 0.5}}}, "flow.rate=1", "flow.rate=0.5"),
        ({"model": {"num_layers": 4}}, "model.num_layers=2", "model.num_layers=4"),
        ({"batching": {"num_parts": 9}}, "batching.num_parts=none", "batching.num_parts=9"),
        ({"degree_leak": True}, "data.degree_leak=none", "data.degree_leak=True"),
        (
            {"source": {"homophily": 0.2, "split_seed": 1}},
            "dataset.source.homophily=none",
            "dataset.source.homophily=0.2",
        ),
    ],
)
def test_what_differs_is_named_as_it_is_typed(
    changed: dict[str, Any], default: str, named: str
) -> None:
    assert names(record("a"), record("b", **changed)) == [f"grand, {default}", f"grand, {named}"]


def test_no_worst_case_is_taken_over_several_settings() -> None:
    swept = [record("a", auto=0.1), record("b", auto=0.5, model={"flow": {"rate": 0.5}})]
    shown = show_worst_cases(frame(swept))
    worst = dict(zip(shown.cells["model"], shown.cells["worst"], strict=True))
    assert worst == {"grand, flow.rate=0.5": 50, "grand, flow.rate=1": 10}
    paired = compare_worst_cases(frame(swept), "grand, flow.rate=0.5", "grand, flow.rate=1")
    assert list(paired.cells["seeds"]) == [1, 1]


def test_accuracies_of_retrained_models_are_no_evidence_of_one_models_worst_case() -> None:
    accuracies = {"random_flip": 0.5, "metattack": 0.3}
    found = frame([finished(0.8, accuracies, threat="poisoning", surrogates=["gcn"])])
    assert list(found["accuracy"]) == [0.8, 0.5, 0.3]
    assert found[["chance", "transfer", "white_box", "adaptive"]].isna().all(axis=None)
    assert found["by"][2] == "metattack (poisoning)"


def test_every_setting_is_named_as_it_is_typed() -> None:
    retired = {key for options in RETIRED.values() for key in options}
    choices = [
        ["fidelity=released", "adversary=injection", "batching=clusters"],
        ["model=beltrami_guard", "flow=heat", "model.flow.heads=2"],
        ["model=gcn", "adversary=flips"],
    ]
    for overrides in choices:
        cfg = composed(*overrides)
        keys = [str(key) for key in cfg if key not in ("hydra", "paths", "logger")]
        config = OmegaConf.to_container(OmegaConf.masked_copy(cfg, keys), resolve=True)
        made = finished(model=cfg.hydra.runtime.choices.model) | {"config": config}
        settings = frame([made])["settings"][0]
        assert {"model.dropout", "training.max_epochs"} <= settings.keys()
        for path, value in settings.items():
            if path.rpartition(".")[2] not in retired:
                assert OmegaConf.select(cfg, path, default="nothing") == value, path
