import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import get_object

from robust_diffusion.config import PUBLISHED
from robust_diffusion.records import read_records
from robust_diffusion.records.identity import (
    MOVED,
    PUBLISHED_IDS,
    cell_id,
    present_places,
    recorded_settings,
)

CONFIG: dict[str, Any] = {
    "seed": 0,
    "data": {"name": "cora", "source": {"folder": {"root": "/data", "path": "grb-cora"}}},
    "model": {"num_layers": 3, "flow": {"t_end": 1.0}},
    "training": {"max_epochs": 5, "progress_bar": True, "trainer": {"devices": 1}},
    "attacks": {"speit": {"steps": 3}},
    "budget": {"max_injected_nodes": 3},
    "threat": {"surrogates": {"appnp": {"num_layers": 3}}, "labels": "predicted"},
    "threads": 1,
    # These only feed the parts above.
    "dataset": {"name": "cora"},
    "difficulty": "easy",
    "fidelity": {"num_steps": 2},
    "flow": {"t_end": 1.0},
    "paths": {"outputs": "outputs"},
    "solver": {"method": "euler"},
    "surrogates": {"appnp": {"num_layers": 3}},
    "trainer": {"devices": 1},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    config = copy.deepcopy(CONFIG)
    *parents, key = path.split(".")
    node = config
    for parent in parents:
        node = node[parent]
    node[key] = value
    return config


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("paths.outputs", "elsewhere"),
        ("download", True),
        ("force", True),
        ("time_limit", 60),
        ("solver.max_nfe", 100),
        ("logger", {"_target_": "x"}),
        ("table", {"number": 3}),
        ("model._partial_", True),
        ("model.flow.t_end", 1),
        ("training.progress_bar", False),
        ("data.source.folder.root", "/other"),
        # Read by the other parts alone, where they are read at all.
        ("dataset.printed", {"nodes": 2680}),
        ("difficulty", "full"),
        ("fidelity.num_steps", 1),
        ("flow.t_end", 0.5),
        ("solver.method", "dopri5"),
        ("surrogates.gat", {}),
        ("trainer.devices", 2),
        # Missing in older records.
        ("callbacks", {}),
        ("adversary", {}),
        ("certificate", {}),
        ("timing", {}),
        ("training.adversary", {}),
        ("training.adversary", None),
        ("data.edge_values", "ones"),
        ("model.variant", "original"),
        ("model.negative_degree", "zero"),
        ("threat.surrogates.appnp.variant", "original"),
    ],
)
def test_unread_keys_make_no_other_cell(path: str, value: Any) -> None:
    assert cell_id(changed(path, value)) == cell_id(CONFIG)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("seed", 1),
        ("threads", 2),
        ("model.flow.t_end", 0.5),
        ("model.variant", "grb"),
        ("training.adversary", {"num_steps": 1}),
        ("training.max_epochs", 6),
        ("training.trainer.devices", 2),
        ("data.name", "pubmed"),
        ("data.edge_values", "ids"),
        ("data.source.folder.path", "other"),
        ("attacks.speit.steps", 4),
        ("budget.max_injected_nodes", 4),
        ("threat.labels", "true"),
        ("threat.surrogates.appnp.variant", "grb"),
        ("callbacks", {"swa": {}}),
        ("timing", {"on": {"cpu": "here"}}),
        # Names that are ignored elsewhere.
        ("model.flow.key", 1),
        ("model.root", 1),
        ("data.source.root", "/mine"),
        ("threat.surrogates.appnp.progress_bar", 1),
    ],
)
def test_read_keys_make_another_cell(path: str, value: Any) -> None:
    assert cell_id(changed(path, value)) != cell_id(CONFIG)


def test_without_attacks_threat_and_budget_are_unread() -> None:
    clean = CONFIG | {"attacks": {}}
    other = clean | {"threat": {"name": "white_box"}, "budget": {"max_injected_nodes": 9}}
    assert cell_id(other) == cell_id(clean) != cell_id(CONFIG)


@pytest.mark.faults
def test_limits_of_a_run_make_no_other_cell() -> None:
    # They end a cell as a failure, or change nothing.
    def limited(**limit: int | None) -> str:
        solver = {"method": "euler"} | limit
        surrogate = {"appnp": {"solver": solver}}
        return cell_id(changed("model.solver", solver) | {"threat": {"surrogates": surrogate}})

    assert limited() == limited(max_nfe=None) == limited(max_nfe=5) != limited(num_steps=5)


def test_timing_reads_no_training() -> None:
    timed = CONFIG | {"timing": {"on": {"cpu": "here"}}}
    longer = {"max_epochs": 9, "trainer": {"devices": 1}}
    assert cell_id(timed | {"training": longer, "attacks": {}}) == cell_id(timed)
    elsewhere = {"max_epochs": 5, "trainer": {"devices": 2}}
    assert cell_id(timed | {"training": elsewhere}) != cell_id(timed)


def test_the_order_of_keys_does_not_matter() -> None:
    assert cell_id(dict(reversed(CONFIG.items()))) == cell_id(CONFIG)


@pytest.mark.parametrize("folder", [False, True])
def test_a_graph_counts_by_content_and_not_by_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, folder: bool
) -> None:
    def of(path: object) -> str:
        return cell_id(changed("data.source", {"path": path}))

    monkeypatch.chdir(tmp_path)
    old, new = Path("2024"), tmp_path / "elsewhere" / "7"
    new.parent.mkdir()
    if folder:
        old.mkdir()
    file = old / "graph.npz" if folder else old
    file.write_bytes(b"one")
    before = of("2024")
    # Hydra reads a name of digits as a number.
    assert {of(2024), of("./2024"), of(str(old.resolve()))} == {before}
    old.rename(new)
    assert of(str(new)) == before
    (new / "graph.npz" if folder else new).write_bytes(b"two")
    assert of(str(new)) != before


@pytest.mark.parametrize("more", [{"user_code": {"own": "0"}}, {"config": {"threads": 2}}])
def test_records_of_other_code_have_other_settings(more: dict[str, Any]) -> None:
    record = {"config": {"model": {"heads": 4}}}
    assert recorded_settings(record)["model"] == {"heads": 4}
    assert recorded_settings(record | more)["model"] != {"heads": 4}


def test_published_ids_are_told_by_what_cells_read() -> None:
    ids = json.loads(PUBLISHED_IDS.read_text())
    assert len(set(ids.values())) == len(ids) > 0
    assert not set(ids) & set(ids.values())


@pytest.mark.parametrize(("now", "before"), MOVED.items())
def test_a_class_that_moved_makes_no_other_cell(now: str, before: str) -> None:
    assert get_object(now)
    config = CONFIG | {"threat": {"_target_": now}}
    old = CONFIG | {"threat": {"_target_": before}}
    assert cell_id(config) == cell_id(old)
    assert present_places(old) == config


def test_every_class_of_a_published_cell_is_found() -> None:
    found = {
        target
        for record in read_records(PUBLISHED / "results" / "records.jsonl.gz")
        for target in targets(present_places(record.get("config", {})))
    }
    assert len([get_object(target) for target in found]) > 40


def targets(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from [node["_target_"]] if "_target_" in node else []
        node = list(node.values())
    if isinstance(node, list):
        for value in node:
            yield from targets(value)
