"""Functions, files and forward passes of a call, as a Markdown table.

    python benchmarks/walks.py

A walk counts calls of the package's functions: distinct functions, distinct files, and changes of
file from one call to the next. Calls from the attacks and the model's forward count separately.
"""

import logging
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

import robust_diffusion
from robust_diffusion import Budget, evaluate
from robust_diffusion.attacks import PGD, RandomInjection
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.data.sources import citation_like_graph
from robust_diffusion.experiment.evaluate_run import evaluate_run
from robust_diffusion.experiment.run import run_and_record
from robust_diffusion.models import GCN
from robust_diffusion.training.module import NodeClassification

PACKAGE = str(Path(robust_diffusion.__file__).parent)

Found = dict[str, int | str]


class Walk:
    """Recorder of calls of the package's functions, separately for those below `inner`."""

    def __init__(self, inner: tuple[CodeType, ...] = (), end: CodeType | None = None) -> None:
        self.inner, self.end = inner, end
        self.functions: list[CodeType] = []
        self.own: list[CodeType] = []  # not below an inner function
        self.depth, self.ended = 0, False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Record a call or a return."""
        code = frame.f_code
        if event == "return" and code in self.inner:
            self.depth -= 1
        self.ended |= event == "call" and code is self.end
        if event != "call" or self.ended:
            return
        if code.co_filename.startswith(PACKAGE) and code.co_name != "<module>":
            self.functions.append(code)
            if not self.depth and code not in self.inner:
                self.own.append(code)
        self.depth += code in self.inner

    def count(self, call: Callable[[], object]) -> None:
        """Record the calls that a function makes."""
        sys.setprofile(self)
        try:
            call()
        finally:
            sys.setprofile(None)

    def counts(self, calls: list[CodeType]) -> Found:
        """Count distinct functions and files, and changes of file."""
        files = [code.co_filename for code in calls]
        changes = sum(a != b for a, b in pairwise(files))
        return {"functions": len(set(calls)), "files": len(set(files)), "changes": changes}


def walk_evaluate() -> list[Found]:
    """Evaluate a GCN under one attack and its control."""
    data = citation_like_graph(num_nodes=200, num_edges=400, num_features=16)
    torch.manual_seed(0)
    model, clean = GCN(16, 8, out_channels=7), data.edge_index.size(1)
    attacks = PGD.__call__.__code__, RandomInjection.__call__.__code__
    walk = Walk((*attacks, GCN.forward.__code__))
    passes: list[tuple[bool, bool]] = []
    step = [False]

    def note(_: Any, given: tuple[Any, ...]) -> None:
        callers, frame = set(), sys._getframe()
        while frame := frame.f_back:  # type: ignore[assignment]
            callers.add(frame.f_code)
        attacked = bool(callers & set(attacks))
        passes.append((attacked, given[1].size(1) == clean and len(given[0]) == data.num_nodes))
        step[0] |= attacked

    model.register_forward_pre_hook(note)

    attack, budget = PGD(num_steps=2), Budget(3, 3)

    def measured() -> None:
        evaluate(model, data, attacks=attack, budget=budget, progress=False)

    measured()  # imports late modules
    passes.clear()
    walk.count(measured)
    own = [is_clean for attacked, is_clean in passes if not attacked]
    first = next(i for i, (attacked, _) in enumerate(passes) if attacked)
    counts: Found = {
        "forward passes": len(passes),
        "of the attacks": len(passes) - len(own),
        "before the first step": first,
        "other, clean graph": sum(own),
        "other": len(own),
    }
    name: Found = {"walk": "evaluate, all"}
    apart: Found = {"walk": "evaluate, less attacks and model"}
    return [name | walk.counts(walk.functions) | counts, apart | walk.counts(walk.own)]


def walk_run() -> list[Found]:
    """Follow a configuration to the first step of its training."""
    found: list[Found] = []
    with TemporaryDirectory() as folder, initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        graph = [f"dataset.source.num_{key}" for key in ("nodes=200", "edges=400")]
        short = ["training.max_epochs=1", "trainer=cpu", "attack=none", "logger=none"]
        places = [f"paths.{key}={folder}/{key}" for key in ("records", "store", "output_dir")]
        for seed in (1, 2):  # the first imports late modules
            own = ["flow=heat", "model.hidden_channels=8", f"seed={seed}", *graph, *short, *places]
            cfg = compose("config", own, return_hydra_config=True)
            HydraConfig.instance().set_config(cfg)
            keys = [str(key) for key in cfg if key != "hydra"]
            cfg = OmegaConf.masked_copy(cfg, keys)
            ends = {
                "cfg to evaluate_run": evaluate_run.__code__,
                "cfg to the first training step": NodeClassification.training_step.__code__,
            }
            name = list(ends)[seed - 1]
            walk = Walk(end=ends[name])
            run_and_record(OmegaConf.merge(cfg, {"seed": seed + 10}))
            walk.count(lambda cfg=cfg: run_and_record(cfg))
            found.append({"walk": name} | walk.counts(walk.functions))
    return found


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    rows = [*walk_evaluate(), *walk_run()]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    for row in rows:
        print("| " + " | ".join(str(row.get(key, "")) for key in columns) + " |")
