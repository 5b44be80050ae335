"""The part of a record that is known before anything is computed."""

import os
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError

from robust_diffusion.records.content import code_hash, user_code, user_files
from robust_diffusion.records.identity import parts_read, run_id
from robust_diffusion.records.provenance import machine, revision, versions
from robust_diffusion.records.record import Config, Record, Request

OWN_FLOW = "flow@model.flow"
"""Hydra's key for the flow of a model that has a fixed flow and ignores `flow`."""


def record_header(cfg: DictConfig) -> Record:
    """Collect identity, choices, configuration and provenance of a run, in a Hydra application."""
    hydra: Any = HydraConfig.get()
    choices = hydra.runtime.choices
    uses_flow = "flow" in cfg.model
    config: Any = OmegaConf.to_container(cfg, resolve=True)
    for key in (
        "paths",
        "logger",
        "mlp",
        "table",
    ):  # without effect on results
        config.pop(key, None)
    if timing := config["timing"]:
        config["timing"] = timing | {"on": machine()}
    attacked = None if timing else choices.threat
    # Whole parts, since the folder of a file is not a setting: it does not affect results.
    read = {key: config[key] for key in parts_read(config) if key in config}
    content: dict[str, Any] = {"user_code": user_code(read), "user_files": user_files(read)}
    return Record.model_construct(
        run=run_id(config, **content),
        code=code_hash(),
        **{key: hashes for key, hashes in content.items() if hashes},
        experiment=choices.experiment,
        scale=choices.get("scale", "full"),
        dataset=str(cfg.dataset.name),
        difficulty=str(cfg.difficulty),
        model=choices.model,
        flow=choices.get(OWN_FLOW, choices.flow) if uses_flow else None,
        solver=choices.solver if uses_flow else None,
        fidelity=choices.fidelity,
        threat=attacked,
        surrogates=list(config["threat"].get("surrogates") or {}) if attacked else [],
        seed=config.pop("seed"),
        config=_config(config),
        overrides=by_key(hydra.overrides.task),
        versions=versions(),
        backend=str(cfg.backend),
        revision=revision(),
        # Relative to the records, so that a folder of results can be moved as a whole.
        directory=os.path.relpath(cfg.paths.output_dir, Path(cfg.paths.records).parent),
        job=OmegaConf.select(hydra, "job.num", default=0),
        time=now(),
    )


def _config(config: dict[str, Any]) -> Config:
    try:
        return Config.model_validate(
            {key: part for key, part in config.items() if part is not None}
        )
    except ValidationError:  # of a run that fails: a part may be a word
        return Config()


def request_of(cfg: DictConfig, record: Record) -> Request:
    """Return what a run is asked for by, in a Hydra application: its sweep, or a single command."""
    hydra = HydraConfig.get()
    alone = OmegaConf.is_missing(hydra.job, "num")
    return Request(
        experiment=record.experiment,
        scale=record.scale,
        overrides=record.overrides,
        time=record.time,
        sweep=sweep_name(cfg, cfg.paths.output_dir if alone else hydra.sweep.dir),
        job=record.job,
    )


def sweep_name(cfg: DictConfig, folder: str | Path) -> str:
    """Return the name of a sweep in the records, by its folder relative to them."""
    relative = os.path.relpath(folder, Path(cfg.paths.records).parent)
    return re.sub(r"[^\w.-]+", "-", relative).strip(".-") or "here"


def now() -> str:
    """Return the time of a record or a sweep."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def by_key(overrides: Iterable[str]) -> dict[str, str]:
    """Return those overrides that can change results, by key."""
    # Sweepers escape colons in values.
    parts = (text.replace("\\:", ":").lstrip("+").partition("=") for text in overrides)
    return {
        key: value
        for key, equals, value in parts
        if equals and not key.startswith("paths.") and key != "force"
    }
