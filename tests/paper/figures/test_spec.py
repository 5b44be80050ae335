import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.figures.spec import FIGURES, panel_overrides


def options(name: str, *given: str) -> dict[str, tuple[str, ...]]:
    return panel_overrides(FIGURES[name], given)


def test_the_papers_panels_on_the_papers_graph() -> None:
    assert options("flows") == {
        "Heat": ("dataset=cora", "flow=heat"),
        "Mean Curvature": ("dataset=cora", "flow=mean_curvature"),
        "Beltrami": ("dataset=cora", "flow=beltrami"),
    }
    assert list(options("lipschitz").values()) == [
        ("dataset=cora", "flow.spectral_norm=false"),
        ("dataset=cora", "flow.spectral_norm=true"),
    ]


def test_given_options_reach_every_panel_and_replace_defaults() -> None:
    for own in options("lipschitz", "dataset=synthetic", "seed=3", "flow=grand").values():
        assert own[1:] == ("dataset=synthetic", "seed=3", "flow=grand")


def test_a_list_of_flows_makes_the_panels() -> None:
    found = options("flows", "seed=1", "flow=grand,p_laplacian,my_flow")
    assert list(found) == ["GRAND/BLEND", "P laplacian", "My flow"]
    assert found["GRAND/BLEND"] == ("dataset=cora", "flow=grand", "seed=1")


@pytest.mark.parametrize("given", ["flow.spectral_norm=true", "seed"])
def test_compared_and_empty_overrides_are_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=f"^{given.partition('=')[0]}:"):
        options("lipschitz", given)
