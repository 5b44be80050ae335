import copy
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.evaluation.identity import cell_id, shaping

CONFIG: dict[str, Any] = {
    "seed": 0,
    "flow": {"t_end": 1.0},
    "training": {"max_epochs": 5, "progress_bar": True},
    "dataset": {"name": "cora", "source": {"folder": {"root": "/data", "path": "grb-cora"}}},
    "paths": {"outputs": "outputs"},
    "threads": 1,
    "model": {"num_layers": 3},
    "surrogates": {"appnp": {"num_layers": 3}},
    "threat": {"surrogates": {"appnp": {"num_layers": 3}}},
    "fidelity": {"num_steps": 2},
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
        ("threads", 2),
        ("download", True),
        ("flow.t_end", 1),
        ("download", False),
        ("training.progress_bar", False),
        ("dataset.source.folder.root", "/other"),
        ("logger", {"_target_": "x"}),
        ("force", True),
        ("table", {"number": 3}),
        ("dataset.edge_values", "ids"),  # data.edge_values says what is taken
    ],
)
def test_where_and_what_is_shown_make_no_other_cell(path: str, value: Any) -> None:
    assert cell_id(changed(path, value)) == cell_id(CONFIG)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("seed", 1),
        ("flow.t_end", 0.5),
        ("training.max_epochs", 6),
        ("dataset.name", "pubmed"),
        ("dataset.source.folder.path", "other"),
        # Names that say nothing elsewhere.
        ("flow.key", 1),
        ("model.root", 1),
        ("surrogates.appnp.download", 1),
        ("threat.surrogates.appnp.progress_bar", 1),
    ],
)
def test_what_shapes_the_result_makes_another_cell(path: str, value: Any) -> None:
    assert cell_id(changed(path, value)) != cell_id(CONFIG)


def test_a_part_that_came_later_makes_no_other_cell_until_there_is_something_in_it() -> None:
    assert cell_id(CONFIG | {"timing": {}}) == cell_id(CONFIG)
    here, there = (CONFIG | {"timing": {"on": {"cpu": cpu}}} for cpu in ("here", "there"))
    assert len({cell_id(CONFIG), cell_id(here), cell_id(there)}) == 3


@pytest.mark.parametrize(
    ("path", "as_before"),
    [
        ("model.variant", "original"),
        ("model.negative_degree", "zero"),
        ("surrogates.appnp.variant", "original"),
        ("fidelity.appnp", "original"),
        ("fidelity.appnp", "grb"),
        ("fidelity.graph_sage", "original"),
        ("fidelity.graph_sage", "grb"),
        ("fidelity.edge_values", "ones"),
        ("fidelity.pgd_steps", 5),
    ],
)
def test_a_key_that_came_later_makes_no_other_cell_at_its_old_value(
    path: str, as_before: str
) -> None:
    assert cell_id(changed(path, as_before)) == cell_id(CONFIG)


def test_a_surrogates_key_that_came_later_makes_no_other_cell_either() -> None:
    config = changed("surrogates.appnp.variant", "original")
    config["threat"] = {"surrogates": config["surrogates"]}  # as Hydra resolves it
    assert cell_id(config) == cell_id(CONFIG)
    config["threat"]["surrogates"]["appnp"]["variant"] = "grb"
    assert cell_id(config) != cell_id(CONFIG)


def test_the_variant_of_a_model_makes_another_cell() -> None:
    assert cell_id(changed("model.variant", "grb")) != cell_id(CONFIG)


def test_the_order_of_keys_does_not_matter() -> None:
    assert cell_id(dict(reversed(CONFIG.items()))) == cell_id(CONFIG)


@pytest.mark.parametrize("folder", [False, True])
def test_the_users_own_files_count_by_their_content(tmp_path: Path, *, folder: bool) -> None:
    path = tmp_path / "mine"
    if folder:
        path.mkdir()
    file = path / "graph.npz" if folder else path
    file.write_bytes(b"one")
    config = changed("dataset.source", {"path": str(path)})
    before = cell_id(config)
    assert cell_id(config) == before
    file.write_bytes(b"two")
    assert cell_id(config) != before


@pytest.mark.parametrize("folder", [False, True])
def test_where_the_users_own_files_lie_makes_no_other_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, folder: bool
) -> None:
    def of(path: object) -> str:
        source = {"path": path}
        return cell_id(changed("dataset.source", source) | {"data": {"source": dict(source)}})

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


def test_two_files_that_are_not_there_are_two_cells() -> None:
    here, there = (changed("dataset.source", {"path": path}) for path in ("here", "there"))
    assert cell_id(here) != cell_id(there)


def test_shaping_drops_keys_at_every_depth() -> None:
    config = {"model": {"_partial_": True, "flow": {"_partial_": True, "heads": 4}}, "paths": {}}
    assert shaping(config) == {"model": {"flow": {"heads": 4}}}
