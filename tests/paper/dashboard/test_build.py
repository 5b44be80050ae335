import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.dashboard import Dashboard, project_dashboard, table_dashboard
from robust_diffusion.paper.layout import load_layout, table_numbers

NUMBERS = [number for number in table_numbers() if load_layout(number).kind != "budgets"]


def sections(dashboard: Dashboard) -> list[str]:
    return [section.title for section in dashboard.sections]


@pytest.mark.parametrize(
    ("number", "groups"),
    [
        (1, ["record.dataset", "record.model"]),
        (3, ["record.dataset", "record.flow"]),
        (5, ["record.solver", "model.solver.num_steps"]),
        (6, ["model.num_layers", "model.flow.spectral_norm"]),
        (9, ["record.dataset", "budget.max_injected_nodes", "record.model"]),
        (10, ["budget.node_ratio", "budget.epsilon"]),
    ],
)
def test_groups_are_the_axes_of_the_table(number: int, groups: list[str]) -> None:
    assert table_dashboard(number).groups == tuple(f"config:{group}" for group in groups)


def test_filters_are_table_scale_and_variant() -> None:
    shown = table_dashboard(3, scale="smoke", fidelity="released")
    assert shown.name == "Table 3: flows (released, smoke run)"
    assert shown.filters == {
        "run:Tags": "table-3",
        "run:JobType": "cell",
        "config:record.scale": "smoke",
        "config:record.fidelity": "released",
    }


def test_every_attack_is_shown_with_its_budget() -> None:
    keys = table_dashboard(10).keys
    for key in ("accuracy/pgd_modification", "seconds/pgd_modification"):
        assert f"summary:{key}" in keys
    assert "summary:spent/pgd_modification/largest_feature_change" in keys
    assert "summary:spent/pgd_modification/injected_nodes" not in keys
    assert not any("tdgia" in key for key in table_dashboard(11).keys)
    assert "summary:spent/speit/injected_edges" in table_dashboard(11).keys


def test_varied_numbers_are_axes() -> None:
    varied = table_dashboard(6).sections[1].panels
    assert "config:model.num_layers" in {panel.x for panel in varied}
    assert sections(table_dashboard(6))[1] == "What table 6 varies"
    assert "What table 3 varies" not in sections(table_dashboard(3))


def test_all_cells_have_a_dashboard_too() -> None:
    every = project_dashboard()
    assert every.groups[0] == "run:Group"
    accuracy, *others = sections(every)
    assert accuracy == "Accuracy, clean and attacked"
    assert others == ["Training curves", "Time", "Budgets spent"]
    for attack in ("speit", "tdgia", "pgd_modification"):
        assert f"summary:accuracy/{attack}" in every.keys


def test_a_table_of_times_shows_no_accuracy() -> None:
    (number,) = [n for n in NUMBERS if load_layout(n).kind == "time"]
    keys = table_dashboard(number).keys
    assert "summary:seconds/diffusion" in keys
    assert not any("accuracy" in key for key in keys)


def test_a_table_without_runs_has_no_dashboard() -> None:
    with pytest.raises(ConfigError, match="--table 15"):
        table_dashboard(15)
