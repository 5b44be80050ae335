import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.utils import instantiate
from safetensors.torch import save_file

from robust_diffusion.certificates.certify_model import SCHEMES
from robust_diffusion.commands.certify import run_certify_command
from robust_diffusion.errors import ConfigError
from robust_diffusion.models import GCN
from tests.conftest import TINY_DATA

GIVEN = [*TINY_DATA, "model=gcn", "model.hidden_channels=8", "certificate.samples=30"]
TRAINING = ["training.max_epochs=3", "training.progress_bar=false", "trainer=cpu"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., str]:
    def call(*arguments: str) -> str:
        GlobalHydra.instance().clear()
        run_certify_command([*GIVEN, f"paths.store={tmp_path / 'store'}", *arguments])
        return capsys.readouterr().out

    return call


@pytest.mark.parametrize("name", ["sparse", "bi_smoothing"])
def test_options_have_the_defaults_of_the_scheme(compose: Callable[..., Any], name: str) -> None:
    assert instantiate(compose(f"certificate={name}").certificate) == SCHEMES[name]()


def models(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "store").glob("model-*.safetensors")}


def test_a_model_is_trained_on_the_noise_of_its_certificate_once(
    run: Callable[..., str], tmp_path: Path
) -> None:
    out = run(*TRAINING, "certificate.budgets=[1]", "--save", str(tmp_path / "report"))
    assert out.startswith("GCN, 20 target nodes, sparse (p_plus=0.001, p_minus=0.8), 30 draws")
    record = json.loads((tmp_path / "report" / "certificate.json").read_text())
    assert record["dataset"] == "synthetic"
    assert [point["budget"] for point in record["curve"]] == [0, 1]
    assert f"smoothed; abstained {100 * record['abstained']:.2f} %" in out
    first = models(tmp_path)
    assert run(*TRAINING, "certificate.budgets=[1]") == out
    assert models(tmp_path) == first
    noises = [["certificate.p_minus=0.5"], ["certificate=bi_smoothing"], ["--clean-training"]]
    for count, other in enumerate(noises, 2):
        run(*TRAINING, *other)
        assert len(models(tmp_path)) == count


@pytest.mark.slow
def test_weights_are_certified_and_attacked(run: Callable[..., str], tmp_path: Path) -> None:
    torch.manual_seed(0)
    save_file(GCN(16, 8, 7).state_dict(), path := tmp_path / "gcn.safetensors")
    given = [f"checkpoint={path}", "certificate.budgets=[2]", "attack=[random]"]
    out = run(*given, "certificate=bi_smoothing", "--local", "3")
    assert out.startswith("GCN, 3 target nodes, bi_smoothing")
    assert re.search(r"budget certified attacked attack +broken\n", out)
    assert re.search(r" 2 +[\d.]+ +[\d.]+ +(random )? *0\n", out)
    assert models(tmp_path) == set()


def test_what_cannot_be_is_told_in_a_line(run: Callable[..., str]) -> None:
    wrong = [
        (["threat=white_box"], "threat=white_box: certify does not read it"),
        (["certificate.samples=0"], "certificate.samples=0"),
        (["attack=[pgd]", "training.max_epochs=1", *TRAINING[1:]], "pgd is of kind injection"),
    ]
    for given, message in wrong:
        with pytest.raises(Exception, match=re.escape(message)) as caught:
            run(*given)
        assert isinstance(caught.value.__cause__ or caught.value, ConfigError)
