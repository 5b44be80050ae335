"""Text of `--help`, printed before Hydra composes a configuration."""

from collections.abc import Mapping
from textwrap import fill

from robust_diffusion.config import CONFIG_DIR

GROUPS = {
    "dataset": "graph, its test nodes and the budget of its attacks",
    "model": "network that is trained and attacked",
    "flow": "equation of model=graph_pde",
    "solver": "method that integrates the flow",
    "attack": "attacks to run, such as [speit,tdgia]",
    "threat": "what the attacker knows",
    "surrogate": "models that a black-box attacker trains, such as [gcn,mlp]",
    "fidelity": "equations of the paper, or of the authors' code",
    "experiment": "study of several runs: a table of the paper, or a further question",
    "scale": "full length, or a quick check that everything runs",
    "certificate": "noise and budgets of the command certify",
    "batching": "train on the whole graph at once, or on clusters of it",
    "adversary": "adversarial training: nodes injected in each epoch",
    "timing": "measure the time of a step instead of an accuracy",
    "trainer": "device that trains",
    "logger": "where the training curves go",
    "callbacks": "Lightning callbacks of the training",
    "hydra/launcher": "with -m, where runs execute; default: one after another",
    "hydra/sweeper": "with -m, which runs: products of options, or grids",
}
"""Purpose of each config group that users set on the command line."""

PROGRAM = "python -m robust_diffusion.run"

EXAMPLES = {
    "-m flow=heat,mean_curvature,beltrami seed=0,1": "three flows, two seeds",
    "dataset=cora attack=[speit] budget.max_injected_nodes=20": "one attack and its budget",
    "model=gnn_guard threat=white_box attack=auto": "the worst case of a defence",
    "experiment=table-3 scale=smoke": "a table of the paper, cut short",
    "flow=grand --cfg job": "every key with its value; nothing is run",
}
"""Example arguments -> what they run."""

HEAD = f"""\
usage: {PROGRAM} [-m] [group=option ...] [key=value ...]
       {PROGRAM} command --help

Train a model, attack its graph, and record its accuracy on the clean and on each attacked graph.
With -m, values separated by commas are swept. --version prints the version, --hydra-help the
flags of Hydra.
"""


def usage(commands: Mapping[str, str]) -> str:
    """Return the text of `--help`, at most 100 characters wide."""
    examples = [f"  {PROGRAM} {arguments}\n      {aim}" for arguments, aim in EXAMPLES.items()]
    listed = [f"  {name:16}{purpose}" for name, purpose in sorted(commands.items())]
    groups = [f"  {name:16}{content}\n{_options(name)}" for name, content in GROUPS.items()]
    parts = {"examples": examples, "commands": listed, "groups": groups}
    return HEAD + "".join(f"\n{title}:\n" + "\n".join(rows) + "\n" for title, rows in parts.items())


def _options(group: str) -> str:
    names = ", ".join(sorted(path.stem for path in (CONFIG_DIR / group).glob("*.yaml")))
    indent = " " * 18
    return fill(names, 100, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
