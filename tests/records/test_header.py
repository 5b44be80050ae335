from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from robust_diffusion.cells import timing
from robust_diffusion.records.header import record_header

Compose = Callable[..., DictConfig]


def test_another_machine_is_no_other_cell(
    compose: Compose, tiny_clean: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = compose("flow=heat", *tiny_clean)
    before = record_header(cfg)["cell"]
    monkeypatch.setattr(timing, "cpu_name", lambda: "another processor")
    assert record_header(cfg)["cell"] == before


@pytest.mark.parametrize(
    ("options", "unread"),
    [
        (["model=gcn"], ["flow=heat", "solver=dopri5"]),
        (["model=mlp"], ["flow.t_end=2", "fidelity.num_steps=1"]),
        (["model=beltrami_guard"], ["flow=heat"]),
        (["threat=white_box"], ["surrogate=[gat]"]),
        (["attack=none"], ["threat=white_box", "budget.max_injected_nodes=1"]),
    ],
)
def test_unread_options_make_no_other_cell(
    compose: Compose, options: list[str], unread: list[str]
) -> None:
    assert (
        record_header(compose(*options))["cell"]
        == (record_header(compose(*options, *unread))["cell"])
    )


def test_read_options_make_other_cells(compose: Compose) -> None:
    read = ["seed=1", "flow=heat", "solver=rk4", "surrogate=[gat]", "threads=2", "attack=none"]
    cells = {record_header(compose(option))["cell"] for option in ["seed=0", *read]}
    assert len(cells) == 7


def test_the_users_files_are_recorded(compose: Compose, tmp_path: Path) -> None:
    graph = tmp_path / "graph.npz"
    graph.write_bytes(b"one")
    cfg = compose("dataset=custom", f"dataset.source.path={graph}")
    before = record_header(cfg)
    graph.write_bytes(b"two")
    after = record_header(cfg)
    assert before["cell"] != after["cell"]
    assert list(before["user_files"]) == ["data.source.path"]
    assert before["user_files"] != after["user_files"]
    assert not {"user_code", "user_files"} & set(record_header(compose("flow=heat")))
