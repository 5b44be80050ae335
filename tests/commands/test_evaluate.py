import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch_geometric.nn import models as pyg

from robust_diffusion.models import GCN, GNNGuard
from robust_diffusion.training import NodeClassification
from tests.conftest import TINY_ATTACKS, TINY_DATA

Cli = Callable[..., Any]

BASE = [*TINY_DATA, *TINY_ATTACKS[:2], "attack=random"]
PYG = ["model=torch_geometric.nn.models.GCN", "model.hidden_channels=8", "model.num_layers=2"]


def gcn() -> pyg.GCN:
    torch.manual_seed(0)
    return pyg.GCN(16, 8, 2, 7)


@pytest.mark.parametrize("suffix", [".ckpt", "own"])
def test_a_model_of_anybodys_class_is_evaluated_and_its_report_saved(
    cli: Cli, make_datamodule: Callable[..., Any], tmp_path: Path, suffix: str
) -> None:
    torch.manual_seed(0)
    model = GCN(16, 8, out_channels=7) if suffix == "own" else gcn()
    given = ["model=gcn", "model.hidden_channels=8"] if suffix == "own" else PYG
    path = tmp_path / f"weights{suffix.removesuffix('own') or '.safetensors'}"
    if path.suffix == ".safetensors":
        save_file(model.state_dict(), path)
    else:
        torch.save({"state_dict": NodeClassification(model, num_classes=7).state_dict()}, path)
    options = ["threat.attacker_knows=labels", "seed=3", "--save", str(tmp_path / "report")]
    options += ["attack=[random,pgd]", "attacks.pgd.num_steps=2"]
    cli("evaluate", *BASE, *given, f"checkpoint={path}", *options)
    record = json.loads((tmp_path / "report" / "report.json").read_text())
    view = make_datamodule().view("test")
    right = model.eval()(view.x, view.edge_index).argmax(1) == view.y
    assert record["clean_accuracy"] == float(right[view.mask].double().mean())
    given = {"attacker_knows": "labels", "seed": 3, "threat": "white_box"}
    assert record.items() >= given.items()
    assert record["budget"]["max_injected_nodes"] == 3
    assert (tmp_path / "report" / "graph-random.safetensors").is_file()


def test_commands_read_options_of_a_users_folder(cli: Cli, tmp_path: Path) -> None:
    torch.save(gcn().state_dict(), weights := tmp_path / "gcn.pt")
    (folder := tmp_path / "my" / "model").mkdir(parents=True)
    path, *options = (option.removeprefix("model.") for option in PYG)
    lines = [
        f"_target_: {path.removeprefix('model=')}",
        *options,
        "in_channels: 16",
        "out_channels: 7",
    ]
    (folder / "mine.yaml").write_text("\n".join(lines).replace("=", ": "))
    given = ["--config-dir", str(folder.parent), "model=mine"]
    cli("evaluate", *BASE, *given, f"checkpoint={weights}")
    missing = cli("evaluate", *BASE, "--config-dir", str(tmp_path / "none"), "model=mine").error
    assert "--config-dir" in missing


@pytest.mark.parametrize(
    "options",
    [
        ["--graphs", "own"],
        ["--unit-test", "--save", "own"],
        ["--unit-test", "attack=random"],
        ["--unit-test", "budget.max_injected_nodes=5"],
    ],
)
def test_an_option_that_nothing_reads_is_refused(
    cli: Cli, tmp_path: Path, options: list[str]
) -> None:
    torch.save(gcn().state_dict(), path := tmp_path / "gcn.pt")
    error = cli("evaluate", *TINY_DATA, *PYG, f"checkpoint={path}", *options).error
    assert next(name for name in options[::-1] if name != "own") in error


@pytest.mark.parametrize("command", ["evaluate", "certify"])
def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    cli: Cli, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    torch.save(gcn().state_dict(), path := tmp_path / "gcn.pt")
    monkeypatch.setattr("robust_diffusion.data.GraphDataModule.setup", None)  # reads the graph
    given = [*TINY_DATA, *PYG, f"checkpoint={path}", "--save", str(tmp_path / "file" / "report")]
    error = cli(command, *given).error
    assert error.startswith("error: --save")
    assert "name another folder" in error


def test_what_cannot_be_is_told_in_a_line(cli: Cli, tmp_path: Path) -> None:
    torch.save(gcn().state_dict(), good := tmp_path / "gcn.pt")
    (tmp_path / "code.pt").write_bytes(pickle.dumps(print))
    changed = {key: value.to(torch.int64) for key, value in gcn().state_dict().items()}
    torch.save(changed, tmp_path / "whole.pt")
    content = good.read_bytes()
    weight = next(iter(gcn().state_dict().values())).numpy().tobytes()
    flipped = weight[:3] + bytes([weight[3] ^ 64]) + weight[4:]
    (tmp_path / "flipped.pt").write_bytes(content.replace(weight, flipped))
    checkpoint = f"checkpoint={good}"
    wrong = [
        *(([*PYG, f"checkpoint={of}.pt"], f"{of}.pt") for of in ("whole", "flipped", "code")),
        ([], "checkpoint"),
        ([*PYG[:2], checkpoint], "model=torch_geometric.nn.models.GCN"),
        (["model=no.such.Class", checkpoint], "model=no.such.Class"),
        ([*PYG[:2], "model.num_layers=3", checkpoint], "does not fit the model, a GCN ("),
        ([*PYG, "checkpoint=no.pt"], "checkpoint=no.pt: not found"),
        *(([*PYG, checkpoint, of], of) for of in ("training.max_epochs=3", "threat=black_box")),
    ]
    for given, key in wrong:
        assert key in cli("evaluate", *BASE, *given).error


def test_a_deleted_key_is_deleted_and_not_set_to_nothing(cli: Cli, tmp_path: Path) -> None:
    torch.save(GCN(16, 8, out_channels=7).state_dict(), path := tmp_path / "gcn.pt")
    own = ["model=gcn", "model.hidden_channels=8", f"checkpoint={path}"]
    assert "accuracy" in cli("evaluate", *BASE, *own, "~model.dropout").out
    torch.save(gcn().state_dict(), path)
    given = [*PYG, f"checkpoint={path}", "~model.dropout"]
    assert "~model.dropout: " in cli("evaluate", *BASE, *given).error


def test_each_is_attacked_under_the_named_threat(cli: Cli, tmp_path: Path) -> None:
    torch.manual_seed(0)
    torch.save(GNNGuard(16, 8, out_channels=7).state_dict(), path := tmp_path / "guard.pt")
    own = ["model=gnn_guard", "model.hidden_channels=8", f"checkpoint={path}"]
    given = [*TINY_DATA, *own, "attack=auto_modification", "--each", "3"]
    default, adaptive, exact = (
        cli("evaluate", *given, "--save", str(tmp_path), *option).out
        and (tmp_path / "each.csv").read_text()
        for option in ([], ["threat=adaptive"], ["threat=white_box"])
    )
    assert default == adaptive != exact
    unread = "threat.attacker_knows=labels"
    assert f"{unread}: " in cli("evaluate", *given, unread).error
