"""Declarations of all flags, shared by the code that raises them and the code that reads records.

A flag is one entry of `DECLARED` and a check in `evaluation.flags.CHECKS`. The site lists them.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What a flag means, and where it applies."""

    kind: Literal["number", "attack"]  # whether the accuracy is in doubt, or the attack may be weak
    meaning: str  # for the page of flags
    remedy: str  # for the page of flags, reports and tables
    of_graph: bool = False  # counted on the graph, whichever model the attack was crafted on
    of_class: bool = False  # depends on the class of the attack
    of_predictions: bool = False  # measured on the predictions of the tested model
    of_blind: bool = False  # also raised if no injection can have an effect on the model
    compared: bool = True  # whether `audit` compares it with that of a saved report


DECLARED: dict[str, Declaration] = {
    "stochastic": Declaration(
        kind="number",
        meaning="two forward passes of the model differ",
        remedy="make the model deterministic in eval mode",
    ),
    "solvers_disagree": Declaration(
        kind="number",
        meaning="the same weights under RK4 with four times the steps (under the fractional "
        "predictor for `frond` and `dragon`), or for an adaptive solver at a hundredth of its "
        "tolerances, differ by more than a point",
        remedy="raise `solver.num_steps`, or lower `solver.rtol` and `solver.atol`",
    ),
    "diverged": Declaration(
        kind="number",
        meaning="an equal step of the solver is more than 20 times as long as the longest stable "
        "one; measured in runs, not by `evaluate`",
        remedy="raise `solver.num_steps`, or lower `flow.t_end`",
    ),
    "logits_not_finite": Declaration(
        kind="number",
        meaning="the model's logits are not finite at some target node",
        remedy="train the model again, with a lower learning rate",
    ),
    "budget_overspent": Declaration(
        kind="number",
        meaning="the auditor found a broken limit",
        remedy="fix the attack, or raise the limit that it breaks",
        of_graph=True,
        of_blind=True,
        compared=False,  # `audit` prints the violations themselves
    ),
    "degree_leak": Declaration(
        kind="number",
        meaning="degrees of test edges leak into training (`fidelity.degree_leak=true`); derived "
        "by tables from a run's settings, not by `evaluate`",
        remedy="train with `fidelity.degree_leak=false`",
    ),
    "no_effect": Declaration(
        kind="attack",
        meaning="no prediction changes, although the model depends on its neighbours",
        remedy="run `attack=auto`, or raise the budget",
        of_class=True,
    ),
    "zero_gradient": Declaration(
        kind="attack",
        meaning="the gradient is zero at over half of the injected nodes that have an edge",
        remedy="run `threat=adaptive`; your own model must define `make_adaptive` for it",
        of_class=True,
    ),
    "gradient_not_finite": Declaration(
        kind="attack",
        meaning="the gradient is not finite at some injected node",
        remedy="make the gradient finite, for example by a small constant under a square root",
        of_class=True,
    ),
    "misleading_gradient": Declaration(
        kind="attack",
        meaning="a small step along the gradient in the injected features gains less than a tenth "
        "of what the gradient predicts, as if it were reversed or shattered",
        remedy="run `threat=adaptive`; your own model must define `make_adaptive` for it",
        of_class=True,
    ),
    "no_edge_gradient": Declaration(
        kind="attack",
        meaning="the model takes neither edge weights nor a mask on the messages of PyG's layers, "
        "so edges move by measured gains alone; not raised if `auto` runs [covers]"
        "(auto.md) alone",
        remedy="let the model's `forward` take `edge_weight`",
        of_class=True,
    ),
    "rough_edge_gradient": Declaration(
        kind="attack",
        meaning="edges of weight 0 change the logits, as in attention without edge weights; the "
        "gradient of absent edges is a guess",
        remedy="multiply each message by its `edge_weight`, so that weight 0 removes the edge",
        of_class=True,
    ),
    "loss_without_errors": Declaration(
        kind="attack",
        meaning="the loss rises by more than 1 nat, but accuracy falls by at most one point",
        remedy="run an attack with a margin loss, such as `attack=auto`",
    ),
    "weaker_than_chance": Declaration(
        kind="attack",
        meaning="the random control does more harm; `evaluate` reports its graph for "
        "an ensemble such as `auto`",
        remedy="give the attack more steps, or run `attack=auto`",
        of_blind=True,
    ),
    "weaker_than_transfer": Declaration(
        kind="attack",
        meaning="an attack crafted on another model does more harm",
        remedy="give the attack more steps, or run `threat=adaptive`",
    ),
    "budget_unspent": Declaration(
        kind="attack",
        meaning="an injection leaves part of the budget unused; not raised for `auto`, which also "
        "tries smaller budgets",
        remedy="read what was spent, and compare attacks at that budget",
        of_graph=True,
        of_class=True,
        of_blind=True,
    ),
    "budget_allows_nothing": Declaration(
        kind="attack",
        meaning="every limit of the budget that the attack uses rounds to nothing, such as 0.2 of "
        "3 edges",
        remedy="raise the budget, or attack more targets",
        of_graph=True,
        of_class=True,
    ),
    "not_converged": Declaration(
        kind="attack",
        meaning="the three best parts of an ensemble differ by more than five points, or the "
        "accuracy under `auto` falls by more than two points in the last third of its forward "
        "passes",
        remedy="give the attack more steps, such as `num_steps=300`",
    ),
    "parts_given_up": Declaration(
        kind="attack",
        meaning="an ensemble skipped some parts because the model has no gradient for them, or "
        "none that is finite",
        remedy="let the model's `forward` take `edge_weight`, or define `make_adaptive`",
        compared=False,  # older reports lack the reasons
    ),
    "part_above_clean": Declaration(
        kind="attack",
        meaning="a part of an ensemble raises accuracy by more than one point",
        remedy='read the accuracy of each part in `report["auto"].graph.part_accuracy`',
    ),
    "one_class": Declaration(
        kind="attack",
        meaning="over nine tenths of the predictions, or of the targets still correctly classified "
        "if they are ten or more, are of one class, but were not on the clean graph",
        remedy="run `attack=auto`, which attacks every class, with more steps if that is flagged",
        of_predictions=True,
    ),
    "probabilities": Declaration(
        kind="attack",
        meaning="the model returns probabilities, which are attacked through their logarithm",
        remedy="return logits",
    ),
}
"""Declaration of each flag, by its code."""


OF_THE_NUMBER = frozenset(code for code, flag in DECLARED.items() if flag.kind == "number")
"""Flags that put the accuracy itself in doubt; the others mean that an attack may be too weak."""


def remedy_of(code: str, attack: str = "") -> str:
    """Return what to do about a flag, as plain text.

    Args:
        code: A key of `DECLARED`.
        attack: Name of the attack whose options are set on the command line; "" for Python.
    """
    prefix = f"attacks.{attack}." if attack else ""
    return DECLARED[code].remedy.replace("`num_steps", prefix + "num_steps").replace("`", "")
