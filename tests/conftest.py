"""Fixtures shared by all tests.

`robust_diffusion` is imported late, behind pytest's type hook; torch, where tests run.
"""

import gc
import importlib
import logging
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hydra
import pytest
import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobRuntime
from hypothesis import HealthCheck, settings
from omegaconf import DictConfig, OmegaConf, open_dict

# What is first imported behind jaxtyping's hook is compiled anew in every process: seconds of it.
BEFORE_THE_HOOK = (
    "tests.shapes",
    "matplotlib.figure",
    "pandas",
    "pooch",
    "pytorch_lightning",
    "scipy.stats",
    "sklearn.manifold",
    "torch_geometric",
    "torchdiffeq",
    "torchmetrics",
    "wandb",
)

Compose = Callable[..., DictConfig]

TINY_DATA = [
    "dataset.source.num_nodes=200",
    "dataset.source.num_edges=400",
    "dataset.source.num_features=16",
]
TINY_CLEAN = ["training.max_epochs=3", "model.hidden_channels=8", "trainer=cpu"]
TINY_TRAINING = [*TINY_CLEAN, "threat.fit.max_epochs=3"]
TINY_ATTACKS = [
    "budget.max_injected_nodes=3",
    "budget.max_edges_per_injected_node=3",
    "attacks.speit.num_steps=3",
    "attacks.tdgia.num_steps=3",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--limit-seconds",
        type=float,
        help="processor time of the call of a test, beyond which one that is not slow fails",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Derandomized: a run tries the examples of the last one. No deadline: a busy machine is slow.
    profile = settings(
        deadline=None,
        derandomize=True,
        max_examples=50,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.register_profile("deterministic", profile)
    settings.load_profile("deterministic")
    if config.getoption("dist", "no") == "no":  # not in the process that only deals tests out
        import torch

        if not torch.cuda.is_available():
            # Triton's interpreter runs the kernels; read when Triton is imported, as by PyG.
            os.environ.setdefault("TRITON_INTERPRET", "1")
        for name in BEFORE_THE_HOOK if config.getoption("jaxtyping_packages", None) else ():
            if find_spec(name.partition(".")[0]):  # a bare GPU machine lacks some
                importlib.import_module(name)
    # Tests run in folders of their own, so a relative path would lead nowhere.
    if data := os.environ.get("ROBUST_DIFFUSION_DATA"):
        os.environ["ROBUST_DIFFUSION_DATA"] = str(Path(data).resolve())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    import torch

    # The longest first: at the end, one process would wait for another's.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    data = os.environ.get("ROBUST_DIFFUSION_DATA")
    lacking = {}
    if not torch.cuda.is_available():
        lacking["gpu"] = "no CUDA device"
    if not data:
        lacking["real_data"] = "ROBUST_DIFFUSION_DATA is not set"
    elif not (Path(data) / "grb-cora").is_dir():
        lacking["real_data"] = "ROBUST_DIFFUSION_DATA has no folder grb-cora"
    for item in items:
        for marker, reason in lacking.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    start = time.process_time()  # which other processes do not add to
    yield
    limit, spent = item.config.getoption("--limit-seconds"), time.process_time() - start
    if limit and spent > limit and not any(map(item.get_closest_marker, ("slow", "gpu"))):
        pytest.fail(f"takes {spent:.1f} s; shrink it, or mark it slow", pytrace=False)


def pytest_collection_finish() -> None:
    # What is imported stays; the garbage collector need not look through it time and again.
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One seed for every test; paths in the test's folder; nothing reaches W&B's server."""
    import torch

    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("WANDB_", "HYDRA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("ROBUST_DIFFUSION_TRACEBACK", raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")


@pytest.fixture
def tiny() -> list[str]:
    """Overrides of a run that takes about a second, both attacks included."""
    return [*TINY_DATA, *TINY_TRAINING, *TINY_ATTACKS]


@pytest.fixture
def tiny_clean() -> list[str]:
    return [*TINY_DATA, *TINY_CLEAN, "attack=none"]


@pytest.fixture(scope="session", autouse=True)
def _composed_once() -> Iterator[None]:
    """Each configuration is composed once: a pickled copy takes a hundredth of Hydra's time."""
    compose, known = ConfigLoaderImpl._load_configuration_impl, {}

    def load(loader: ConfigLoaderImpl, *args: Any, **options: Any) -> Any:
        path = str(loader.get_search_path())
        folder = Path.cwd() if "command-line" in path else ""  # of a test's --config-dir
        key = path, folder, JobRuntime.instance().get("name"), repr(args), repr(options)
        if key not in known:
            known[key] = pickle.dumps(compose(loader, *args, **options))
        return pickle.loads(known[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConfigLoaderImpl, "_load_configuration_impl", load)
        patch.setattr(yaml, "SafeLoader", yaml.CSafeLoader)  # OmegaConf's, ten times as fast
        yield


@pytest.fixture
def compose(tmp_path: Path) -> Iterator[Compose]:
    """Composes the configuration of a run that writes to the test's folder."""
    from robust_diffusion.config import CONFIG_DIR

    def composed(*overrides: str) -> DictConfig:
        GlobalHydra.instance().clear()
        with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIG_DIR)):
            cfg = hydra.compose("config", overrides=list(overrides), return_hydra_config=True)
        with open_dict(cfg):
            cfg.hydra.runtime.output_dir = str(tmp_path / "outputs" / "run")
            HydraConfig.instance().set_config(cfg)
            task = OmegaConf.masked_copy(cfg, [key for key in cfg if key != "hydra"])
        OmegaConf.set_struct(task, value=True)
        return task

    yield composed
    HydraConfig.instance().cfg = None
    GlobalHydra.instance().clear()


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str
    records: list[Any]

    @property
    def error(self) -> str:
        """The one line that says what is wrong."""
        assert "Traceback" not in self.err + self.out
        (line,) = [line for line in self.err.splitlines() if line.startswith("error:")]
        return line

    @property
    def table(self) -> list[dict[str, str]]:
        """The rows of the printed Markdown table."""
        from tests.tables import rows_of

        return rows_of(self.out)


@pytest.fixture
def cli(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Outcome]]:
    """Runs `python -m robust_diffusion.run` in this process."""
    from robust_diffusion.records import read_records
    from robust_diffusion.run import main

    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    on_signal = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def run(*arguments: str) -> Outcome:
        GlobalHydra.instance().clear()
        monkeypatch.setattr(sys, "argv", ["run.py"])
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # main sets it; this puts it back
        capsys.readouterr()
        status = 0
        try:
            main(arguments)
        except SystemExit as stop:
            status = int(stop.code or 0)
        printed = capsys.readouterr()
        records = read_records("outputs/records", missing_ok=True)
        return Outcome(status, printed.out, printed.err, records)

    yield run
    for handler in set(root.handlers) - set(handlers):
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    for number, handler in on_signal.items():
        signal.signal(number, handler)
    GlobalHydra.instance().clear()


@pytest.fixture(scope="session")
def make_datamodule() -> Callable[..., Any]:
    """Builds a small graph to train on; keyword arguments go to the GraphDataModule."""
    from robust_diffusion.data import GraphDataModule
    from robust_diffusion.data.sources import citation_like_graph

    source = partial(citation_like_graph, num_nodes=200, num_edges=400, num_features=16)
    return lambda **options: GraphDataModule(source, name="toy", **options)


@pytest.fixture(scope="session")
def make_fit() -> Callable[..., Any]:
    """Builds a Fit of few epochs on the CPU."""
    import pytorch_lightning as pl

    from robust_diffusion.training import Fit

    trainer = partial(
        pl.Trainer,
        accelerator="cpu",
        devices=1,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
        enable_model_summary=False,
    )
    return lambda **options: Fit(trainer, **({"max_epochs": 3} | options))


@pytest.fixture(scope="session")
def evaluate_in(make_datamodule: Callable[..., Any], make_fit: Callable[..., Any]) -> Any:
    """Evaluates a run in a folder, of a GCN unless said otherwise; others are its parts."""
    from robust_diffusion.evaluation import BlackBox
    from robust_diffusion.evaluation.load import ModelTraining, Recipe, victim_key
    from robust_diffusion.experiment.evaluate_run import evaluate_run
    from robust_diffusion.records.store import ArtifactStore
    from tests.models.small import gcn

    def evaluated(folder: Path, **parts: Any) -> Any:
        given = {
            "datamodule": make_datamodule(),
            "model": gcn,
            "fit": make_fit(),
            "threat": BlackBox({"gcn": gcn}, make_fit()),
            "seed": 0,
        } | parts
        key = {
            "model": {"name": getattr(given["model"], "__name__", "model")},
            "training": {},
            "threat": {"surrogates": {"gcn": {}, "other": {"name": "other"}}, "fit": {}},
            "attacks": {name: {"name": name} for name in given["attacks"]},
        }
        given = {"cache_key": key} | given
        datamodule, seed = given.pop("datamodule"), given.pop("seed")
        train = ModelTraining(datamodule, ArtifactStore(folder / "store"), seed, folder / "run")
        recipe = Recipe(given.pop("model"), given.pop("fit"), victim_key(given["cache_key"]))
        return evaluate_run(train, recipe, **given)

    return evaluated


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    message = "the network was used"
    monkeypatch.setattr("pooch.retrieve", lambda *_, **__: pytest.fail(message))


@pytest.fixture(scope="session")
def zoo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zoo of one small model; nobody may change it."""
    from tests.zoo import small_zoo

    return Path(small_zoo(tmp_path_factory.mktemp("zoo")).directory)
