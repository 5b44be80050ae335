"""Mistakes and faults: each ends in one line that names its key or file, and in a status."""

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import OmegaConfBaseException
from torch import Tensor, nn
from torch_geometric.nn import models

from robust_diffusion import Budget, RobustnessReport, certify, evaluate, fit
from robust_diffusion.attacks import GivenGraph, MetaGRBCD
from robust_diffusion.certificates.report import read_certificates
from robust_diffusion.errors import ConfigError, RobustDiffusionError, TrainingError
from robust_diffusion.evaluation import right_by_edges
from robust_diffusion.models import GCN
from robust_diffusion.operators import Graph
from robust_diffusion.results.frame import frame
from robust_diffusion.system.artifact import Artifact, write_artifact
from robust_diffusion.system.boundary import describe, expected_cause
from tests.conftest import TINY_CLEAN, TINY_DATA
from tests.drawn import CLASSES, FEATURES, NODES, drawn_data
from tests.graphs import without_type_checks

Cli = Callable[..., Any]
BUDGET = Budget(2, 3, edge_ratio=0.1)
MODEL = GCN(FEATURES, 8, out_channels=CLASSES)


def attacked(attacks: Any = "random", model: nn.Module = MODEL, data: Any = None) -> Any:
    data = drawn_data() if data is None else data
    return evaluate(model, data, attacks=attacks, budget=BUDGET, progress=False)


class NoneLater(nn.Module):
    """Returns nothing on graphs that an attack has grown by two nodes."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return MODEL(x, edge_index) if len(x) < NODES + 2 else None


class WithoutParameters(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        src, dst = edge_index
        return x.index_add(0, dst, x[src])[:, :CLASSES]


def lazy() -> nn.Module:
    return models.GCN(-1, 8, 2, CLASSES)


def report_of_pipes() -> None:
    attacked().save("report")
    for path in Path("report").glob("*.safetensors"):
        path.unlink()
        os.mkfifo(path)
    RobustnessReport.load("report")


def deep_certificate() -> None:
    Path("certificate.json").write_text("[" * 10**5)
    read_certificates(["."])


def larger_graph() -> None:
    sp.save_npz("adj.npz", sp.csr_array((150, 150)))
    attacked(GivenGraph(path="adj.npz"))


def smaller_graph() -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    tensors = {"x": torch.ones(50, FEATURES), "edge_index": edges}
    write_artifact("graph-small.safetensors", Artifact(tensors))
    attacked(GivenGraph(path="graph-small.safetensors"))


def full_disk() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with mock.patch("pathlib.Path.write_bytes", side_effect=full):
        fit(MODEL, drawn_data(), max_epochs=1, accelerator="cpu", directory="kept", progress=False)


def edges(*rows: list[int]) -> Any:
    return partial(Graph.from_edge_index, torch.tensor(rows), num_nodes=3)


WRONG: Any = 3
CURVE = pd.DataFrame({"edges": pd.array([0, 1], dtype="Int64"), "max_edges": 2})

CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "report of pipes": (report_of_pipes, "report/clean.safetensors: expected .* got .* pipe"),
    "deep json": (deep_certificate, "certificate.json: .*recursion"),
    "given without path": (partial(attacked, "given"), "attacks.given.path=null: "),
    "no parameters": (
        lambda: fit(WithoutParameters(), drawn_data(), accelerator="cpu", progress=False),
        "model: expected parameters to train, got none in WithoutParameters",
    ),
    "by": (lambda: right_by_edges(CURVE, by="foo"), "by=foo: .*degree, margin"),
    "nodes": (edges([0, 5], [1, 0]), r"edge_index: expected nodes in 0\.\.2, got 0\.\.5"),
    "none later": (lambda: attacked(model=NoneLater()), "model: NoneLater .* NoneType"),
    "records": (lambda: frame(WRONG), "records: expected a list, got 3"),
    "store": (
        lambda: evaluate(MODEL, drawn_data(), attacks="random", budget=BUDGET, store=WRONG),
        "store=3: must be text or a path or null",
    ),
    "certificate": (
        lambda: certify(MODEL, drawn_data(), certificate=WRONG),
        "certificate=3: expected one of sparse",
    ),
    "larger graph": (larger_graph, "adj.npz: expected the 120 nodes .* got 150"),
    "smaller graph": (smaller_graph, "graph-small.safetensors: expected .* got 50 x 8"),
    "full disk": (full_disk, "directory .*kept/best.ckpt: cannot be written"),
    "huge block": (
        lambda: attacked(MetaGRBCD(num_steps=2, num_epochs=1, block_size=10**8)),
        "",
    ),
    "lazy model": (lambda: attacked(model=lazy()), "model: expected a trained model, got lazy"),
    "sparse features": (
        lambda: attacked(data=drawn_data(x=torch.eye(NODES, FEATURES).to_sparse())),
        "data.x: expected a dense tensor, got torch.sparse_coo; use to_dense",
    ),
}
"""Calls from Python, and how their error begins, if there is one."""

EVALUATE = ["evaluate", "checkpoint=w.pt", "model=gcn", "model.hidden_channels=8", *TINY_DATA]
CERTIFY = ["certify", "model=gcn", *TINY_DATA]
RUN = ["flow=heat", "attack=none", "logger=none", *TINY_DATA, *TINY_CLEAN]
OWN = ["--config-dir", "my", *RUN[1:]]
FLOWS = {
    "flawed": "_target_: [a",
    "abstract": "_target_: robust_diffusion.flows.Flow\n_partial_: true",
    "built": "_target_: robust_diffusion.flows.Heat",
}
"""Options of a reader's own flows, by name."""

COMMANDS: dict[str, tuple[list[str], int, str]] = {
    "each without attack": ([*EVALUATE, "attack=none", "--each", "3"], 1, "attacks: none"),
    "local": ([*CERTIFY, "--local", "-1"], 1, "--local=-1: "),
    "accuracy in %": (
        ["table", "3", "--records", "odd.jsonl.gz"],
        1,
        "odd.jsonl.gz: cannot",
    ),
    "further argument": ([*RUN, "data.normalize=null"], 1, r".* or \+data.normalize=null if"),
    "dashes": (["--flow=heat"], 1, "--flow=heat: .* without dashes; write flow=heat"),
    "several values": ([*RUN, "flow=heat,grand"], 1, "flow=heat,grand: .* one value; add -m"),
    "several of a command": ([*CERTIFY, "seed=0,1"], 1, r"seed=0,1: .* one value; give one"),
    "bare word": (["certify", "gcn.pt"], 1, "gcn.pt: expected key=value; .*checkpoint=gcn.pt"),
    "launcher of one run": ([*RUN, "hydra/launcher=cores"], 1, "hydra/launcher=cores: .* add -m"),
    "own yaml": ([*OWN, "flow=flawed"], 1, ".*/my/flow/flawed.yaml: line 2: .*']'"),
    "own abstract class": ([*OWN, "flow=abstract"], 1, "model: cannot be built .*abstract class"),
    "own class built": ([*OWN, "flow=built"], 1, ".*model.flow.*channels.*_partial_: true"),
    "no name": (["table", "3", "--out", "/"], 1, "--out /: cannot be written"),
    "project of runs": (
        [*RUN, "logger=wandb", "logger.wandb.mode=offline", "logger.wandb.project=a/b"],
        1,
        "logger.wandb.project=a/b: expected a name without /",
    ),
}
"""Words of the command line, and how they end."""

SHELL: dict[str, tuple[str, int, str]] = {
    "output closed": ("--help >&-", 1, "standard output: Bad file descriptor"),
    "output full": ("table 3 >/dev/full", 1, "standard output: No space left"),
    "ascii": ("table 3 >out", 0, ""),
    "errors closed": (f"{' '.join(RUN)} 2>&-", 0, ""),
    "run with output full": (f"{' '.join(RUN)} >/dev/full", 1, "standard output: No space left"),
}
"""Standard streams as a shell may leave them."""


def in_a_call(call: Callable[[], Any], cli: Cli) -> tuple[int, str]:
    try:
        with without_type_checks():
            call()
    except RobustDiffusionError as error:
        return 1, str(error)
    return 0, ""


def in_a_command(words: list[str], cli: Cli) -> tuple[int, str]:
    torch.save(GCN(16, 8, out_channels=7).state_dict(), "w.pt")
    Path("my/flow").mkdir(parents=True)
    for name, option in FLOWS.items():
        Path(f"my/flow/{name}.yaml").write_text(f"{option}\n")
    Path("odd.jsonl.gz").write_bytes(b"odd")
    outcome = cli(*words)
    (line,) = [line for line in outcome.err.splitlines() if "error: " in line]
    return outcome.status, line.partition("error: ")[2]


def in_a_shell(words: str, cli: Cli) -> tuple[int, str]:
    ended = subprocess.run(
        f"{sys.executable} -m robust_diffusion.run {words}",
        shell=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert "Traceback" not in ended.stderr
    lines = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    return ended.returncode, "\n".join(lines).removeprefix("error: ")


ROWS = [
    *[
        pytest.param(in_a_call, call, int(line != ""), line, id=k)
        for k, (call, line) in CALLS.items()
    ],
    *[pytest.param(in_a_command, *row, id=k) for k, row in COMMANDS.items()],
    *[pytest.param(in_a_shell, *row, id=k, marks=pytest.mark.slow) for k, row in SHELL.items()],
]


@pytest.mark.faults
@pytest.mark.parametrize(("run", "what", "status", "line"), ROWS)
def test_a_fault_ends_in_a_status_and_one_line_that_names_it(
    cli: Cli, run: Callable[..., tuple[int, str]], what: Any, status: int, line: str
) -> None:
    ended, message = run(what, cli)
    assert ended == status
    assert len(message.splitlines()) == bool(line)
    assert re.match(line, message), message


def test_errors_are_found_behind_what_wraps_them_and_told_in_one_line() -> None:
    ours, wrapper = ConfigError("seed=-1: must be at least 0"), HydraException("in call to target")
    wrapper.__cause__ = ours
    assert expected_cause(wrapper) is ours
    assert expected_cause(ZeroDivisionError()) is None
    missing = MissingConfigException("", "hydra/launcher/submitit_local", ["basic"])
    assert "robust-diffusion[slurm]" in describe(missing)
    for error in (TrainingError("nan\n  at 3"), OmegaConfBaseException("no\n3"), OSError("by\n3")):
        assert "\n" not in describe(error)
        assert describe(error).endswith(" 3")
