"""Accuracies and flags of a saved report, measured again on its model."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pandas as pd
from torch import nn

from robust_diffusion.attacks import Attack, PerturbedGraph
from robust_diffusion.attacks.named import build_attack
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.evaluate_model import PROBABILITIES, subject_of
from robust_diffusion.evaluation.flags import Flag
from robust_diffusion.evaluation.perturbed import BASELINES, Attacker, AttackRun, evaluate_on
from robust_diffusion.evaluation.report import AttackReport, RobustnessReport
from robust_diffusion.models.adaptive import adaptive_form
from robust_diffusion.system.tensor_hashes import state_hash

_UNSAVED = frozenset(["budget_overspent", "parts_given_up"])
"""Flags that are not compared: violations are printed anyway, and older reports lack reasons."""

_OF_THE_ATTACK = frozenset(
    [
        *("no_edge_gradient", "rough_edge_gradient", "zero_gradient", "gradient_not_finite"),
        *("budget_unspent", "budget_allows_nothing", "no_effect"),
    ]
)
"""Flags that depend on the class of an attack, which the name of a user's does not reveal."""


class _SavedGraphs(Attacker):
    """Attacker that returns the graphs of a report instead of crafting new ones."""

    def _crafted(self, run: AttackRun) -> tuple[PerturbedGraph, Mapping[str, Any], str, bool]:
        row: AttackReport = run.cache_key["saved"]
        return row.graph, row.effort, "", True


def measured_again(report: RobustnessReport, model: nn.Module) -> tuple[pd.DataFrame, list[str]]:
    """Return reported and measured accuracy on each graph, in %, and a line per wrong flags.

    Flags of transferred graphs that were measured on their surrogate are not in a report.
    """
    nodes = report.clean.target_nodes
    subject = subject_of(model, report.clean, nodes, None, seed=report.seed)
    with subject.tried.ready():
        form = adaptive_form(subject.model) if report.threat == "adaptive" else subject.model
        state = state_hash(subject.model.state_dict())
        runs, known = list[AttackRun](), set[str]()
        for row in report.attacks:
            attack, is_known = _attack_of(row, report)
            known |= {row.name} if is_known else set()
            seen, at = (subject.model, "") if row.made_on else (form, state)
            seen = subject.model if row.is_control else seen
            key = {"saved": row}
            runs.append(AttackRun(row.name, attack, seen, at, key, row.made_on, row.name))
        own = [Flag("probabilities", PROBABILITIES)] * subject.tried.gives_probabilities
        attacker = _SavedGraphs(subject, report.budget)
        measured = evaluate_on(attacker, subject.model, runs, own_flags=own)
    reported = {"clean": report.clean_accuracy} | {row.name: row.accuracy for row in report.attacks}
    rows = {name: (reported[name], accuracy) for name, accuracy in measured.accuracy.items()}
    frame = 100 * pd.DataFrame.from_dict(rows, orient="index", columns=["reported", "measured"])
    wrong = []
    flags = {"victim": report.flags} | {row.name: row.flags for row in report.attacks}
    for name, signs in flags.items():
        found, told = ({flag.code for flag in f} for f in (measured.flags.get(name, ()), signs))
        unread = _UNSAVED if name in known | {"victim"} else _UNSAVED | _OF_THE_ATTACK
        for difference, codes in (("dropped", found - told), ("added", told - found)):
            if codes := codes - unread:
                wrong.append(f"{name}: flags, {difference}: {', '.join(sorted(codes))}")
    return frame.rename_axis("graph").reset_index(), wrong


def _attack_of(row: AttackReport, report: RobustnessReport) -> tuple[Attack, bool]:
    """Return the attack of a graph for its checks, and whether its class is known by its name."""
    if row.is_control:
        return BASELINES[row.kind], True
    with suppress(ConfigError):
        attack = build_attack(row.name.split("/")[0])
        if attack.kind == row.kind:
            return attack, True
    worst = row.labels != report.labels
    traits = {"name": row.name, "kind": row.kind, "is_worst_case": worst}
    return type("Unknown", (Attack,), traits)(), False
