"""Codes of flags, shared by the code that raises them and the code that reads records."""

from typing import Literal, get_args

Code = Literal[
    "no_effect",
    "weaker_than_chance",
    "weaker_than_transfer",
    "zero_gradient",
    "gradient_not_finite",
    "loss_without_errors",
    "stochastic",
    "solvers_disagree",
    "budget_unspent",
    "budget_overspent",
    "budget_allows_nothing",
    "parts_given_up",
    "no_edge_gradient",
    "rough_edge_gradient",
    "not_converged",
    "part_above_clean",
    "one_class",
    "probabilities",
    "degree_leak",
    "logits_not_finite",
    "diverged",
]
CODES: tuple[Code, ...] = get_args(Code)

OF_THE_NUMBER: frozenset[Code] = frozenset(
    [
        *("stochastic", "solvers_disagree", "budget_overspent", "degree_leak"),
        *("logits_not_finite", "diverged"),
    ]
)
"""Flags that put the accuracy itself in doubt; the others mean that an attack may be too weak."""

OF_THE_GRAPH: frozenset[Code] = frozenset(
    ["budget_unspent", "budget_overspent", "budget_allows_nothing"]
)
"""Flags counted on the attacked graph, whichever model the attack was crafted on."""
