import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.figures.spec import figure_spec, panel_overrides


def options(name: str, *given: str) -> dict[str, tuple[str, ...]]:
    return panel_overrides(figure_spec(name), given)


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


def test_what_a_figure_compares_cannot_be_set() -> None:
    with pytest.raises(ConfigError, match=r"^flow\.spectral_norm:"):
        options("lipschitz", "flow.spectral_norm=true")


def test_an_override_has_a_value() -> None:
    with pytest.raises(ConfigError, match=r"^seed:"):
        options("flows", "seed")


def test_an_unknown_figure_is_named() -> None:
    with pytest.raises(ConfigError, match="figure=nope"):
        figure_spec("nope")
