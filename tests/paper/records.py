"""Hand-made records in the shape in which runs leave them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robust_diffusion.records.record import Record, Request
from robust_diffusion.records.records import archive, save_record, save_request

WITHOUT_FLOW = ("gcn", "gat", "gin", "appnp", "graph_sage", "robust_gcn", "gnn_guard", "gcn_svd")


def fields(
    clean: float = 0.75,
    attacked: float | dict[str, float] = 0.6,
    *,
    experiment: str = "table-3",
    dataset: str = "cora",
    model: str = "graph_pde",
    flow: str | None = "beltrami",
    solver: str = "implicit_adams",
    seed: int = 0,
    attacks: Sequence[str] = ("speit", "tdgia"),
    budget: tuple[int, int] = (50, 50),
    settings: dict[str, dict[str, Any]] | None = None,
    overrides: dict[str, str] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """What a run's record holds; `attacked` is the accuracy under all attacks or under each."""
    given = settings or {}
    flow = None if model in WITHOUT_FLOW else flow
    limits = {
        "max_injected_nodes": budget[0],
        "max_edges_per_injected_node": budget[1],
        "max_injected_edges": None,
        "feature_limits": [-0.94, 0.94],
        "node_ratio": 0.2,
        "edge_ratio": 0.2,
        "epsilon": 0.1,
        **given.get("budget", {}),
    }
    own: dict[str, Any] = {"num_layers": 3, "name": flow or model, **given.get("model", {})}
    if flow is not None:
        own["flow"] = {"lipschitz": True, **given.get("flow", {})}
        own["solver"] = {"num_steps": 2, **given.get("solver", {})}
    values = attacked if isinstance(attacked, dict) else dict.fromkeys(attacks, attacked)
    accuracy = {"clean": clean, **values}
    kind = ["changed_nodes"] if attacks == ("pgd_modification",) else ["injected_nodes"]
    config: dict[str, Any] = {
        "model": own,
        "training": {"max_epochs": 5000, **given.get("training", {})},
        "data": {"name": dataset, "source": {"folder": {"root": "data", "path": dataset}}},
        "budget": limits,
        "threat": {"labels": "predicted"},
        "attacks": {name: {"num_steps": 100} for name in attacks},
        **given.get("config", {}),
    }
    told = (config, seed, model, flow, solver, changes.get("fidelity"), changes.get("scale"))
    record: dict[str, Any] = {
        "run": repr(told),
        "code": "c0de",
        "experiment": experiment,
        "scale": "full",
        "dataset": dataset,
        "difficulty": "easy",
        "model": model,
        "flow": flow,
        "solver": solver if flow else None,
        "fidelity": "paper",
        "threat": "black_box",
        "surrogates": ["gcn"],
        "seed": seed,
        "overrides": {"experiment": experiment, "seed": str(seed), **(overrides or {})},
        "config": config,
        "revision": "abc",
        "accuracy": accuracy,
        "mean_accuracy": dict(accuracy),
        "val_accuracy": 0.8,
        "warnings": {},
        "budget": limits,
        "spent": {
            name: {
                "gcn": {
                    **dict.fromkeys(kind, budget[0]),
                    "injected_edges": 0 if "changed_nodes" in kind else budget[0] * budget[1],
                    "feature_range": [-0.94, 0.94],
                }
            }
            for name in attacks
        },
    }
    return record | changes


def finished(
    clean: float = 0.75, attacked: float | dict[str, float] = 0.6, **options: Any
) -> Record:
    """The record of a finished run; `options` as in `fields`."""
    return Record.model_validate(fields(clean, attacked, **options))


def timed(
    seconds: float = 0.01,
    *,
    experiment: str = "table-7",
    dataset: str = "citeseer",
    model: str = "graph_pde",
    machine: str = "a processor",
    settings: dict[str, dict[str, Any]] | None = None,
    **options: Any,
) -> Record:
    """The record of a run that timed a step: median, and quartiles 10 % below and above."""
    steps = "aggregation" if model in WITHOUT_FLOW else "diffusion"
    timing = {"config": {"timing": {"repeats": 500, "on": {"cpu": machine}}}}
    record = without_results(
        experiment=experiment,
        dataset=dataset,
        model=model,
        attacks=(),
        settings=timing | (settings or {}),
        **options,
    )
    more = {
        "run": f"timed {record['run']} {machine}",
        "threat": None,
        "surrogates": [],
        "nfe": 8 if steps == "diffusion" else 0,
        "seconds": {"diffusion": seconds},
        "timing": {
            "step": steps,
            "repeats": 500,
            "warm_up": 20,
            "q1": 0.9 * seconds,
            "q3": 1.1 * seconds,
            "mean": seconds,
            "fastest": 0.8 * seconds,
            "device": machine,
            "kind": "cpu",
            "threads": 1,
            "backend": "compiled",
            "nodes": 3191,
            "edges": 8344,
            "width": 64,
        },
    }
    return Record.model_validate(record | more)


def failed(
    error: str = "loss is not finite", kind: str = "TrainingError", **options: Any
) -> Record:
    """The record of a run that did not finish; `options` as in `finished`."""
    record = without_results(**options)
    return Record.model_validate(record | {"error": error, "error_kind": kind})


def without_results(**options: Any) -> dict[str, Any]:
    """What a record says before its run."""
    results = {"accuracy", "mean_accuracy", "val_accuracy", "warnings", "budget", "spent"}
    return {key: value for key, value in fields(**options).items() if key not in results}


def also_asked(record: Record, experiment: str = "", **about: Any) -> Record:
    """The record of a run that was asked for again later, by another experiment or the same."""
    about = {"scale": record.scale, "overrides": record.overrides, "time": "later", **about}
    request = Request(experiment or record.experiment, **about)
    record = record.model_copy()
    record.set_requests([*record.requests, request])
    return record


def seeds(values: Sequence[float], **options: Any) -> list[Record]:
    """One record per value, which is both the clean and the attacked accuracy."""
    return [finished(v, v, seed=i, **options) for i, v in enumerate(values)]


def saved(*records: Record, folder: str | Path = "outputs/records", sweep: str = "") -> None:
    """Save records under the ids that their settings give, as asked for by a sweep if named."""
    for record in records:
        record |= {"run": record.id_of_settings}
        save_record(record, folder)
        if sweep:
            (own,) = record.requests
            save_request(folder, record.run, own._replace(sweep=sweep))


def archived(*records: Record, path: str | Path = "own.jsonl.gz") -> str:
    """Write an archive of records, and return its path."""
    Path(path).write_bytes(archive(records))
    return str(path)
