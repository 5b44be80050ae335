"""Names of recorded models, and their settings where several have one name."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from robust_diffusion.evaluation.records import Record, latest_by_cell
from robust_diffusion.results.cells import ABSENT, CLEAN, is_tested, settings_of, value_at

APART = "settings"
"""Key of a record in which `told_apart` says what its model's name lacks."""


def model_name(record: Record) -> str:
    """A model by its own name, or by that of its flow; `beltrami, adversary` if it had one."""
    # Any other model that has a flow brings its own.
    flow = record.get("flow") if record["model"] == "graph_pde" else None
    adversary = value_at(record, "config.training.adversary")
    against = ["adversary"] if adversary is not ABSENT and adversary else []
    return ", ".join([str(flow or record["model"]), *against, *record.get(APART, [])])


def told_apart(records: Sequence[Record]) -> list[Record]:
    """Records in which a name of `model_name` stands for models of the same settings alone.

    A sweep over `flow.rate`, say, trains several models of the name `grand`; no table may take the
    mean over them, let alone the lowest.

    Args:
        records: Any.

    Returns:
        The records that count. Where those of one dataset, variant and name differ in settings of
        the model, its training or its data, the name says so: `grand, flow.rate=0.5`. Splits are
        no setting but draws.
    """
    found = list(latest_by_cell(records).values())
    alike: dict[tuple[Any, ...], dict[int, dict[str, str]]] = {}
    for place, record in enumerate(found):
        if is_tested(record):
            name = record["dataset"], record["fidelity"], model_name(record)
            alike.setdefault(name, {})[place] = _settings(record)
    for models in alike.values():
        paths = sorted({path for settings in models.values() for path in settings})
        differing = [p for p in paths if len({s.get(p) for s in models.values()}) > 1]
        for place, settings in models.items():
            said = [f"{path}={settings.get(path, 'none')}" for path in differing]
            found[place] = {**found[place], APART: said}
    return found


def _settings(record: Record) -> dict[str, str]:
    parts = json.loads(settings_of(record, CLEAN))
    (parts["data"] or {}).pop("source", None)
    return dict(_leaves(parts))


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Settings by the paths under which they are typed."""
    if isinstance(node, Mapping):
        for key, child in node.items():
            # A flow, a solver, an adversary are groups of their own.
            within = isinstance(child, Mapping) and path in ("model.", "training.", "data.")
            yield from _leaves(child, f"{key}." if within else f"{path}{key}.")
    else:
        yield path.removesuffix("."), str(node)
