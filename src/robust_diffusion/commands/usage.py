"""Text of `--help`, printed before Hydra composes a configuration."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import fill, shorten

from robust_diffusion.config import CONFIG_DIR, LISTED, option_names

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

SWEPT = {
    "dataset=synthetic,cora": "graph (synthetic is built in)",
    "flow=heat,mean_curvature,beltrami": "equation of the diffusion",
    "model=graph_pde,gcn,gnn_guard": "network; graph_pde has the flow",
    "solver=implicit_adams,rk4,dopri5": "method that integrates the flow",
    "solver.num_steps=1,2,4": "its steps; or solver.step_size=0.5,1",
    "model.num_layers=2,3": "layers",
    "flow.lipschitz=true,false": "Lipschitz constraint on the attention",
    "attack=[speit,tdgia]": "attacks; auto is the worst case",
    "budget.max_injected_nodes=20,50": "nodes that each attack may inject",
    "seed=0,1,2": "the table shows mean ± standard deviation",
}
"""The most common overrides -> what they set."""

EXPERIMENTS = {
    "demo": "a quick look, with -m flow=heat,beltrami",
    "table-1": "Beltrami against networks and defences",
    "table-3": "the flows of the paper under attack",
    "table-5": "solvers and steps",
    "table-6": "layers and the Lipschitz constraint",
    "table-8": "table 1 with white-box attacks",
    "worst-case": "one worst case per model",
    "successors": "flows of later papers",
    "poisoning": "training on attacked graphs",
    "adversarial": "adversarial training",
}
"""Experiments that the short help shows -> their contents."""

HEAD = f"""\
usage: {PROGRAM} [-m] [group=option ...] [key=value ...]
       {PROGRAM} command --help

Train a model, attack its graph, and record its accuracy on the clean and on each attacked graph.
With -m, values separated by commas are swept: -m flow=heat,beltrami seed=0,1
"""

_COMMENT = re.compile(r"# (?!@package)(.*)")
_KEY = re.compile(r"([a-z]\w*): *(.*?)(?: +# (.*))?")


def asks_for_help(words: Sequence[str]) -> bool:
    """Return whether a command line asks for help, as an empty one does."""
    return not words or not {"-h", "--help"}.isdisjoint(words)


def usage(commands: Mapping[str, str], words: Sequence[str] = ()) -> str:
    """Return the text of `--help`, at most 100 characters wide.

    Args:
        commands: Purpose of each command.
        words: The command line; the name of a config group selects the help of this group.
    """
    names = [word.partition("=")[0] for word in words]
    if len(named := [group for group in GROUPS if group in names]) == 1:
        return "\n".join(_help_of(named[0])) + "\n"
    rows = (_columns(SWEPT.items(), 36), _columns(EXPERIMENTS.items(), 14))
    keys, experiments = ("\n".join(lines) for lines in rows)
    further = {
        "--help GROUP": f"options and keys of a group: {', '.join(GROUPS)}",
        "COMMAND --help": f"options of a command: {', '.join(sorted(commands))}",
        "--cfg job": "every key of a run with its value; runs nothing",
        "--force": "repeat runs that are recorded already",
        "--hydra-help": "flags of Hydra; --version prints the version",
    }
    more = "\n".join(_columns(further.items(), 16))
    parts = {"keys": keys, "experiments, as experiment=NAME": experiments, "more": more}
    return HEAD + "".join(f"\n{title}:\n{text}\n" for title, text in parts.items())


def _help_of(group: str) -> Iterator[str]:
    """Yield the lines of the help of a config group: its options, then their keys."""
    yield from (f"{group}=OPTION  {GROUPS[group]}", "", "options:")
    texts = {}
    folder = CONFIG_DIR / ("model" if group == "surrogate" else group)
    for name in option_names(group):
        texts[name] = (folder / f"{name}.yaml").read_text(encoding="utf-8")
    first = ((name, next(iter(_COMMENT.findall(text)), "")) for name, text in texts.items())
    yield from _columns(((name, _shortened(line)) for name, line in first), 22)
    shared = "\n".join(
        file.read_text(encoding="utf-8") for file in (CONFIG_DIR / group).glob("base/*.yaml")
    )
    lines = [*shared.splitlines(), *(line for text in texts.values() for line in text.splitlines())]
    keys: dict[str, str] = {}
    for match in filter(None, map(_KEY.fullmatch, lines)):
        if match[3] and match[1] not in keys:
            keys[match[1]] = match[3]
    if keys and group not in ("experiment", *LISTED):
        yield from ("", "keys:")
        prefix = group.replace("/", ".")
        yield from _columns(((f"{prefix}.{key}", note) for key, note in keys.items()), 32)


def _shortened(text: str) -> str:
    return shorten(text, 74, placeholder=" ...", break_on_hyphens=False)


def _columns(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Return rows as two columns, the first of a width."""
    indent = " " * (width + 4)
    return [
        fill(
            text,
            100,
            initial_indent=f"  {name:<{width}}  ",
            subsequent_indent=indent,
            break_on_hyphens=False,
        )
        for name, text in rows
    ]
