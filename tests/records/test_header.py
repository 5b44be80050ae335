from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from robust_diffusion.records import provenance
from robust_diffusion.records.header import record_header

Compose = Callable[..., DictConfig]


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


@pytest.mark.parametrize(
    ("option", "unread"),
    [
        ("model=gcn", ["flow=heat", "solver=dopri5"]),
        ("model=mlp", ["flow.t_end=2", "fidelity.num_steps=1"]),
        ("threat=white_box", ["surrogate=[gat]"]),
        ("attack=none", ["threat=white_box", "budget.max_injected_nodes=1"]),
        ("flow=heat", []),
        ("threads=2", []),
    ],
)
def test_read_options_and_no_others_make_other_cells(
    compose: Compose, monkeypatch: pytest.MonkeyPatch, option: str, unread: list[str]
) -> None:
    before = record_header(compose(option))["cell"]
    assert before != record_header(compose())["cell"]
    monkeypatch.setattr(provenance, "cpu_name", lambda: "another processor")
    assert record_header(compose(option, *unread))["cell"] == before
