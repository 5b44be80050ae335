"""Accuracies and flags of a saved report, measured again on its model."""

from contextlib import suppress
from dataclasses import replace

import pandas as pd
from torch import nn

from robust_diffusion.attacks import Attack
from robust_diffusion.attacks.named import build_attack
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.evaluate_model import PROBABILITIES, probed
from robust_diffusion.evaluation.flag_codes import DECLARED
from robust_diffusion.evaluation.flags import CONTROLS, AttackResult, Flag, control_of
from robust_diffusion.evaluation.measure import assess, evaluate_on, victim_flags
from robust_diffusion.evaluation.report import AttackReport, RobustnessReport
from robust_diffusion.evaluation.threat import threat_model


def measured_again(report: RobustnessReport, model: nn.Module) -> tuple[pd.DataFrame, list[str]]:
    """Return reported and measured accuracy on each graph, in %, and a line per wrong flags.

    Flags of transferred graphs that were measured on their surrogate are not in a report.
    """
    nodes = report.clean.target_nodes
    victim, task, _ = probed(model, report.clean, nodes, None, seed=report.seed)
    with victim:
        on_itself = any(not (row.made_on or row.is_control) for row in report)
        form = threat_model(report.threat).form(victim) if on_itself else victim
        results, known = list[AttackResult](), set[str]()
        for row in report.attacks:
            attack, is_known = _attack_of(row, report)
            known |= {row.name} if is_known else set()
            seen = victim if row.made_on or row.is_control else form
            control = next((r for r in results if r.attack is control_of(attack)), None)
            if control is not None and seen is not victim:
                control = assess(seen, task, control.attack, report.budget, control.graph, {})
            of_row = seen, task, attack, report.budget, row.graph, row.effort
            result = assess(*of_row, control=control)
            if row.made_on:  # flags of an attack on a surrogate belong to that
                own_flags = [flag for flag in result.flags if _is_of_transfers(flag)]
                result = replace(result, flags=own_flags, surrogate=row.made_on)
            results.append(replace(result, name=row.name, row=row.name))
        own = [Flag("probabilities", PROBABILITIES)] * victim.traits.probabilities
        measured = evaluate_on(victim, task, results, victim_flags(victim, own))
    reported = {"clean": report.clean_accuracy} | {row.name: row.accuracy for row in report.attacks}
    rows = {name: (reported[name], accuracy) for name, accuracy in measured.accuracy.items()}
    frame = 100 * pd.DataFrame.from_dict(rows, orient="index", columns=["reported", "measured"])
    wrong = []
    flags = {"victim": report.flags} | {row.name: row.flags for row in report.attacks}
    for name, signs in flags.items():
        # The name of a custom attack does not reveal its class.
        knows_class = name in known | {"victim"}
        found, told = (
            {flag.code for flag in of if _is_compared(flag, knows_class=knows_class)}
            for of in (measured.flags.get(name, ()), signs)
        )
        # Flags of further attack seeds belong to graphs that are not in the report.
        added = set() if report.worst.by_seed else told - found
        for difference, codes in (("dropped", found - told), ("added", added)):
            if codes:
                wrong.append(f"{name}: flags, {difference}: {', '.join(sorted(codes))}")
    return frame.rename_axis("graph").reset_index(), wrong


def _is_compared(flag: Flag, *, knows_class: bool) -> bool:
    declared = DECLARED[flag.code]
    return declared.compared and (knows_class or not declared.of_class)


def _is_of_transfers(flag: Flag) -> bool:
    """Return whether a flag of a transferred graph is measured on the tested model."""
    declared = DECLARED[flag.code]
    return declared.of_graph or declared.of_predictions


def _attack_of(row: AttackReport, report: RobustnessReport) -> tuple[Attack, bool]:
    """Return the attack of a graph for its checks, and whether its class is known by its name."""
    if row.is_control:
        return CONTROLS[row.kind], True
    with suppress(ConfigError):
        attack = build_attack(row.name.split("/")[0])
        if attack.kind == row.kind:
            return attack, True
    worst = row.attacker_knows != report.attacker_knows
    traits = {"name": row.name, "kind": row.kind, "is_worst_case": worst}
    return type("Unknown", (Attack,), traits)(), False
