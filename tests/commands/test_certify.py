import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from safetensors.torch import save_file

from robust_diffusion.certificates.certify_model import SCHEMES
from robust_diffusion.models import GCN
from tests.conftest import TINY_DATA

GIVEN = [*TINY_DATA, "model=gcn", "model.hidden_channels=8", "certificate.samples=30"]
TRAINING = ["training.max_epochs=3", "training.progress_bar=false", "trainer=cpu"]


@pytest.fixture
def run(cli: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    return partial(cli, "certify", *GIVEN, f"paths.store={tmp_path / 'store'}")


def models(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "store").glob("model-*.safetensors")}


@pytest.mark.slow
def test_a_model_is_trained_on_its_noise_once(run: Callable[..., Any], tmp_path: Path) -> None:
    saved = ["--save", str(tmp_path / "report")]
    out = run(*TRAINING, "certificate.budgets=[1]", *saved).out
    record = json.loads((tmp_path / "report" / "certificate.json").read_text())
    assert record["dataset"] == "synthetic"
    assert [point["budget"] for point in record["curve"]] == [0, 1]
    first = models(tmp_path)
    assert run(*TRAINING, "certificate.budgets=[1]").out == out
    assert models(tmp_path) == first
    noises = [["certificate.p_minus=0.5"], ["certificate=bi_smoothing"], ["--clean-training"]]
    for count, other in enumerate(noises, 2):
        run(*TRAINING, *other)
        assert len(models(tmp_path)) == count
    torch.manual_seed(0)
    save_file(GCN(16, 8, out_channels=7).state_dict(), path := tmp_path / "gcn.safetensors")
    given = [f"checkpoint={path}", "certificate.budgets=[2]", "attack=[random]", *saved]
    run(*given, "certificate=bi_smoothing", "--local", "3")
    record = json.loads((tmp_path / "report" / "certificate.json").read_text())
    assert (record["certificate"], record["num_targets"]) == ("bi_smoothing", 3)
    assert {"certified", "attacked"} <= record["curve"][-1].keys()
    assert len(models(tmp_path)) == 4


@pytest.mark.parametrize("name", ["sparse", "bi_smoothing"])
def test_options_have_the_defaults_of_the_scheme_and_others_are_refused(
    compose: Callable[..., Any], run: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    assert instantiate(compose(f"certificate={name}").certificate) == SCHEMES[name]()
    wrong = {"certificate.samples=0": "samples=0"}
    if name == "sparse":
        wrong |= {"threat=white_box": "threat", "attack=[pgd]": "pgd", "--local=1000": "local=1000"}
    for given, key in wrong.items():
        assert key in run(f"certificate={name}", given, *TRAINING).error
    assert not models(tmp_path)  # refused before anything is trained


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("certify --show reports", "dataset=cora"),
        ("certify --show reports", "--save=other"),
        ("certify --show reports", "--local=5"),
        ("certify --show reports", "--clean-training"),
        ("certify --show reports", "--config-dir=other"),
        ("table 4", "--records=other"),
        ("table 4", "--fidelity=released"),
        ("table 3", "--data-dir=other"),
        ("table 15", "--scale=smoke"),
        ("figure layer", "seed=1"),
        ("figure layer", "--perplexity=9"),
        ("evaluate", "--graphs=other"),
        ("evaluate --unit-test", "--save=other"),
    ],
)
def test_an_option_that_a_command_does_not_read_is_refused(
    cli: Callable[..., Any], command: str, option: str
) -> None:
    typed = option if "--" not in option else option.partition("=")[0]
    assert f" {typed}: " in cli(*command.split(), option).error
