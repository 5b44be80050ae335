"""Small victims, surrogates and stores."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def store(tmp_path: Path) -> Any:
    from robust_diffusion.store import ArtifactStore

    return ArtifactStore(tmp_path / "store")


@pytest.fixture
def make_training(make_datamodule: Callable[..., Any], store: Any, tmp_path: Path) -> Any:
    """Builds a ModelTraining on a small graph; keyword arguments replace its parts."""
    from robust_diffusion.evaluation.trained import ModelTraining

    def build(**parts: Any) -> Any:
        defaults = {"datamodule": make_datamodule(), "store": store, "seed": 0}
        return ModelTraining(**({**defaults, "directory": tmp_path / "checkpoints"} | parts))

    return build
