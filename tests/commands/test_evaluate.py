import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch_geometric.nn import models as pyg

from robust_diffusion.commands.evaluate import run_evaluate_command
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.models import GCN
from robust_diffusion.training import NodeClassification
from tests.conftest import TINY_ATTACKS, TINY_DATA

BASE = [*TINY_DATA, *TINY_ATTACKS[:2], "attack=random"]
PYG = ["model=torch_geometric.nn.models.GCN", "model.hidden_channels=8", "model.num_layers=2"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    from hydra.core.global_hydra import GlobalHydra

    def call(*arguments: str) -> str:
        GlobalHydra.instance().clear()
        run_evaluate_command([*BASE, *arguments])
        return capsys.readouterr().out

    return call


def gcn() -> pyg.GCN:
    torch.manual_seed(0)
    return pyg.GCN(16, 8, 2, 7)


def clean(out: str) -> float:
    found = re.search(r"clean\s+([\d.]+)", out)
    assert found is not None
    return float(found[1])


def expected(model: Any, make_datamodule: Callable[..., GraphDataModule]) -> float:
    view = make_datamodule().view("test")
    right = model.eval()(view.x, view.edge_index).argmax(1) == view.y
    return round(100 * float(right[view.mask].double().mean()), 2)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".ckpt"])
def test_a_model_of_anybodys_class(
    run: Callable[..., str], make_datamodule: Callable[..., Any], tmp_path: Path, suffix: str
) -> None:
    model, path = gcn(), tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(model.state_dict(), path)
    elif suffix == ".pt":
        torch.save(model.state_dict(), path)
    else:
        torch.save({"state_dict": NodeClassification(model, num_classes=7).state_dict()}, path)
    out = run(*PYG, f"checkpoint={path}")
    assert out.startswith("GCN, 20 target nodes, white_box, predicted labels\n")
    assert clean(out) == expected(model, make_datamodule)


def test_a_model_of_the_package_is_saved_with_its_report(
    run: Callable[..., str], make_datamodule: Callable[..., Any], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = GCN(16, 8, 7)
    save_file(model.state_dict(), path := tmp_path / "gcn.safetensors")
    given = ["model=gcn", "model.hidden_channels=8", "threat.labels=true", "seed=3"]
    out = run(*given, f"checkpoint={path}", "--save", str(tmp_path / "report"))
    assert clean(out) == expected(model, make_datamodule)
    record = json.loads((tmp_path / "report" / "report.json").read_text())
    assert (record["labels"], record["seed"], record["threat"]) == ("true", 3, "white_box")
    assert record["budget"]["max_injected_nodes"] == 3
    assert (tmp_path / "report" / "graph-random.safetensors").is_file()


def test_what_cannot_be_is_told_in_a_line(run: Callable[..., str], tmp_path: Path) -> None:
    torch.save(gcn().state_dict(), good := tmp_path / "gcn.pt")
    torch.save([1], empty := tmp_path / "list.pt")
    (code := tmp_path / "code.pt").write_bytes(pickle.dumps(print))
    checkpoint = f"checkpoint={good}"
    for of in (torch.int64, torch.complex64):
        changed = {key: value.to(of) for key, value in gcn().state_dict().items()}
        torch.save(changed, tmp_path / f"{of}.pt")
    content = good.read_bytes()
    weight = next(iter(gcn().state_dict().values())).numpy().tobytes()
    flipped = weight[:3] + bytes([weight[3] ^ 64]) + weight[4:]
    (tmp_path / "flipped.pt").write_bytes(content.replace(weight, flipped))
    wrong = [
        *(
            ([*PYG, f"checkpoint={tmp_path}/{name}.pt"], DataError, message)
            for name, message in (
                (torch.int64, "is of type torch.int64"),
                (torch.complex64, "is of type torch.complex64"),
                ("flipped", "checksum"),
            )
        ),
        ([], ConfigError, "checkpoint: missing"),
        ([*PYG, "checkpoint=none.pt"], DataError, "checkpoint=none.pt: cannot be read"),
        ([*PYG, f"checkpoint={code}"], DataError, "cannot be read"),
        ([*PYG, f"checkpoint={empty}"], DataError, "holds no state_dict"),
        (
            [*PYG[:2], checkpoint],
            ConfigError,
            "model=torch_geometric.nn.models.GCN: cannot be built",
        ),
        (["model=no.such.Class", checkpoint], ConfigError, "model=no.such.Class: cannot be built"),
        ([*PYG[:2], "model.num_layers=3", checkpoint], DataError, "does not fit the model"),
        ([*PYG, checkpoint, "training.max_epochs=3"], ConfigError, "evaluate does not read it"),
        ([*PYG, checkpoint, "threat.adjoint=true"], ConfigError, "evaluate does not read it"),
        ([*PYG, checkpoint, "threat=black_box"], ConfigError, "threat=black_box: would train"),
    ]
    for given, error, message in wrong:
        with pytest.raises(error, match=re.escape(message)) as caught:
            run(*given)
        assert len(str(caught.value).splitlines()) == 1
