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
def make_trainer(make_datamodule: Callable[..., Any], store: Any, tmp_path: Path) -> Any:
    """Builds a Trainer on a small graph; keyword arguments replace its parts."""
    from robust_diffusion.evaluation.trained import Trainer

    def build(**parts: Any) -> Any:
        defaults = {"datamodule": make_datamodule(), "store": store, "seed": 0}
        return Trainer(**({**defaults, "directory": tmp_path / "checkpoints"} | parts))

    return build
