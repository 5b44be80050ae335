from collections.abc import Callable

import pytest
from omegaconf import DictConfig

from robust_diffusion.records import provenance
from robust_diffusion.records.header import record_header

Compose = Callable[..., DictConfig]


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
