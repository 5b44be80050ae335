from collections.abc import Sequence
from typing import Any

import pytest
from omegaconf import OmegaConf

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.figures import spec


@pytest.fixture
def overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels as their overrides, not composed."""

    def kept(given: Sequence[str]) -> spec.FigureCell:
        return spec.FigureCell(OmegaConf.create(), {"given": tuple(given)}, {})

    monkeypatch.setattr(spec, "compose_cell", kept)


def options(name: str, *given: str) -> dict[str, Any]:
    cells = spec.panel_cells(spec.SPECS[name], given)
    return {title: cell.config["given"] for title, cell in cells.items()}


@pytest.mark.usefixtures("overrides")
def test_the_papers_panels_on_the_papers_graph() -> None:
    assert options("flows") == {
        "Heat": ("dataset=cora", "flow=heat"),
        "Mean Curvature": ("dataset=cora", "flow=mean_curvature"),
        "Beltrami": ("dataset=cora", "flow=beltrami"),
    }
    given = ("dataset=synthetic", "seed=3", "flow=grand")
    assert [own[1:] for own in options("lipschitz", *given).values()] == [given, given]


@pytest.mark.parametrize("given", ["flow.spectral_norm=true", "seed"])
def test_compared_and_empty_overrides_are_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=f"^{given.partition('=')[0]}:"):
        options("lipschitz", given)
