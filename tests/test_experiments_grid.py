"""The experiment of every table composes, and its runs are what its layout shows."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from robust_diffusion.experiment.sweeper import covering, plan
from robust_diffusion.paper.axes import with_axes
from robust_diffusion.paper.tables import load_layout, table_numbers
from robust_diffusion.records.identity import run_id
from robust_diffusion.records.record import Record
from robust_diffusion.results.frame import narrow_frame
from tests.configs import composed

RUN = [number for number in table_numbers() if load_layout(number).kind != "budgets"]
LARGE = (1, 2, 3, 7, 9)  # of many runs
DATASETS = ["cora", "citeseer", "pubmed", "coauthor", "flickr", "amazon_computer"]


def planned(config: DictConfig) -> list[list[str]]:
    given = {key: config.hydra.sweeper[key] for key in ("params", "grids", "max_runs", "stand_ins")}
    return plan(typed=list(config.hydra.overrides.task), **given)


def runs(number: int, scale: str = "full") -> list[list[str]]:
    return planned(composed(f"experiment=table-{number}", f"scale={scale}"))


def options(run: Sequence[str]) -> dict[str, Any]:
    return {key: OmegaConf.create({"v": value}).v for key, value in (o.split("=") for o in run)}


def record(number: int, run: Sequence[str]) -> dict[str, Any]:
    """What a run's record will say of itself, as far as layouts ask; much faster than Hydra."""
    chosen = options(run)
    base = composed(f"experiment=table-{number}")
    own = {**base.hydra.runtime.choices, **{k: v for k, v in chosen.items() if "." not in k}}
    node = composed(f"flow={own['flow']}", f"solver={own['solver']}", f"model={own['model']}")
    task = OmegaConf.create({part: node[part] for part in ("flow", "solver", "model", "fidelity")})
    task.budget = OmegaConf.to_container(base.budget, resolve=False)
    task.dataset = composed(f"dataset={own['dataset']}").dataset
    task.model.num_layers = base.model.num_layers
    for key, value in chosen.items():
        if "." in key:
            OmegaConf.update(task, key, OmegaConf.create(f"v: {value}").v)
    task.paths = {"data_dir": "data"}
    task.download = False
    timed, attacks = load_layout(number).kind == "time", list(base.attacks)
    return described(own["dataset"], own, task, timed=timed, attacks=attacks)


def described(
    dataset: str, choices: Any, cfg: DictConfig, *, timed: bool, attacks: Sequence[str]
) -> dict[str, Any]:
    has_flow = "flow" in cfg.model
    parts = {part: OmegaConf.to_container(cfg[part], resolve=True) for part in ("model", "budget")}
    step = {"step": "diffusion" if has_flow else "aggregation"}
    results = {"timing": step, "seconds": {"diffusion": 0.1}}
    results = results if timed else {"accuracy": dict.fromkeys(["clean", *attacks], 0.5)}
    return {
        "run": repr((dataset, parts)),
        "seed": 0,
        "fidelity": "paper",
        "dataset": dataset,
        "model": choices["model"],
        **{part: choices[part] if has_flow else None for part in ("flow", "solver")},
        "config": parts | ({"timing": step} if timed else {}),
        "budget": {},
        **results,
    }


def shown(number: int, records: Sequence[dict[str, Any]]) -> tuple[set[Any], list[set[Any]]]:
    """Return the cells of a layout, and those that each run fills."""
    rows, layout = with_axes(narrow_frame(map(Record.model_validate, records))), load_layout(number)
    wanted: set[Any] = set()
    filled: dict[str, set[Any]] = {run: set() for run in rows["run"]}
    for view in layout.grids:
        fixed = {k: v for k, v in layout.fixed.items() if k not in view.select}
        keys = view.printed[view.axes].itertuples(index=False, name=None)
        wanted |= {(*view.axes, *key) for key in keys}
        fit = rows[(rows[list(fixed)] == list(fixed.values())).all(axis=1)] if fixed else rows
        for run, *key in fit[["run", *view.axes]].itertuples(index=False, name=None):
            filled[run].add((*view.axes, *key))
    return wanted, list(filled.values())


@cache
def covering_all_grids() -> list[list[str]]:
    """Runs of all tables, of which each brings an override that none before it has."""
    return covering(itertools.chain.from_iterable(map(runs, RUN)))


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=[pytest.mark.slow] if n in LARGE else []) for n in RUN]
)
def test_a_grid_fills_its_layout_and_runs_nothing_else(number: int) -> None:
    without_seeds = [run for run in runs(number) if "seed=0" in run]
    wanted, filled = shown(number, [record(number, run) for run in without_seeds])
    assert wanted <= set().union(*filled)
    assert all(wanted & of_run for of_run in filled)
    # Cells of a clean graph may have a run for every budget, those of an attack have one.
    counts = Counter(key for of_run in filled for key in of_run & wanted)
    assert all(count == 1 or "clean" in key for key, count in counts.items())


@pytest.mark.slow
@pytest.mark.parametrize("number", RUN)
def test_every_option_of_a_grid_composes_to_what_its_layout_asks(number: int) -> None:
    """The same as above with Hydra itself; and every one is legal in a smoke run."""
    timed = load_layout(number).kind == "time"
    for run in (of for of in covering_all_grids() if f"experiment=table-{number}" in of):
        cfg = composed(*run)
        options = {"timed": timed, "attacks": list(cfg.attacks)}
        made = described(cfg.dataset.name, cfg.hydra.runtime.choices, cfg, **options)
        wanted, (filled,) = shown(number, [made])
        assert wanted & filled
        smoke = composed(*(o.replace("scale=full", "scale=smoke") for o in run))
        assert smoke.data.source.num_nodes == 200


@pytest.mark.parametrize("number", RUN)
def test_a_grid_runs_its_seeds_and_a_smoke_run_all_options(number: int) -> None:
    cfg = composed(f"experiment=table-{number}")
    assert (cfg.hydra.mode, cfg.table.number) == (RunMode.MULTIRUN, number)
    attacks = {*load_layout(number).printed["attack"]} - {"clean", None}
    assert attacks <= set(cfg.attacks)
    whole, smoke = runs(number), runs(number, "smoke")
    # Times differ little between seeds; a claim needs three.
    seeds = "012" if load_layout(number).kind == "time" else "01234"
    assert {run_options["seed"] for run_options in map(options, whole)} == set(seeds)
    typed = cfg.copy()
    typed.hydra.overrides.task.append("seed=range(30)")
    assert len(planned(typed)) == 30 // len(seeds) * len(whole)

    def overrides(sweep: list[list[str]]) -> set[str]:
        return {o for o in itertools.chain(*sweep) if not o.startswith(("seed=", "scale="))}

    assert len(smoke) <= 40
    assert overrides(smoke) == overrides(whole)


@pytest.mark.slow
def test_in_a_smoke_run_every_dataset_is_a_small_graph_and_another_run() -> None:
    found = set()
    for dataset in DATASETS:
        cfg = composed("scale=smoke", f"dataset={dataset}", "paths.data_dir=no", "download=false")
        datamodule = instantiate(cfg.data)
        assert datamodule.name == cfg.dataset.name == dataset
        assert datamodule.graph.num_nodes == 200
        budget = instantiate(cfg.budget).resolve(datamodule.graph.x)
        assert budget.within(datamodule.target_nodes.numel()) == budget
        assert budget.max_injected_nodes == cfg.dataset.budget.max_injected_nodes
        for of in (cfg, composed(f"dataset={dataset}", "paths.data_dir=no")):
            found.add(run_id({"data": OmegaConf.to_container(of.data, resolve=True)}))
    assert len(found) == 12
    for threat, model in (("white_box", "gat"), ("adaptive", "beltrami_guard")):
        cfg = composed("scale=smoke", f"threat={threat}", f"model={model}")
        assert (cfg.training.max_epochs, cfg.trainer.max_steps) == (15, 15)
        assert (cfg.model.hidden_channels, cfg.budget.max_injected_edges) == (8, 40)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "only", "num_runs", "entries"),
    [("14", [], 8, 12), ("7", ["flow=heat", "seed=0"], 7, 7)],
    ids=["accuracies", "times"],
)
def test_a_smoke_run_fills_its_table(
    cli: Callable[..., Any], number: str, only: list[str], num_runs: int, entries: int
) -> None:
    outcome = cli(f"experiment=table-{number}", "scale=smoke", "trainer=cpu", "logger=none", *only)
    assert (outcome.status, len(outcome.records)) == (0, num_runs)
    assert {record.timing.get("repeats", 5) for record in outcome.records} == {5}
    assert f" {entries} measured" in cli("table", number, "--scale", "smoke").out
    full = cli("table", number)
    assert "published" in full.err, "smoke runs are no runs of the paper's table"
    assert "scale=smoke" not in full.out
