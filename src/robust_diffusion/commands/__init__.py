"""Commands that train nothing, one module each."""

COMMANDS = {
    "audit": "check perturbed graphs against a budget, and measure a report again",
    "certify": "certify a model against edge flips or injected nodes by smoothing",
    "compare": "show what each option of a sweep changes, seed by seed",
    "dashboard": "create W&B views of the runs of an experiment",
    "data": "list, verify or export the datasets",
    "evaluate": "attack a trained model, given by its class and a file of weights",
    "leaderboard": "rank models by their worst cases over budgets",
}
"""Purpose of each command; `run` calls `run_<name>_command` in the module of that name."""
