"""`robust-diffusion evaluate`: the robustness of an already trained model."""

import argparse
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from robust_diffusion.errors import ConfigError
from robust_diffusion.results.show import Table, show
from robust_diffusion.system.files import check_folder, write_whole

if TYPE_CHECKING:
    from torch import nn

    from robust_diffusion.attacks import Budget
    from robust_diffusion.data import GraphDataModule

TEST_GRAPH = frozenset(["data.difficulty", "data.name", "data.normalize", "data.source"])
"""Keys of `data` that matter after training."""

READ = TEST_GRAPH | frozenset(
    [
        *("attack", "attacks", "budget", "dataset", "difficulty", "download", "fidelity", "flow"),
        *("model", "paths", "scale", "seed", "solver", "threat.attacker_knows", "threat.name"),
    ]
)
"""Config keys that the command reads, all below a key or a single one."""


ATTACKED = frozenset(["attack", "attacks", "budget", "threat.attacker_knows", "threat.name"])
"""Those that belong to the attacks."""


def run_evaluate_command(arguments: Sequence[str]) -> None:
    """Attack a trained model, print the table, and save the report if asked.

    Raises:
        ConfigError: The model cannot be built, or the weights do not fit it.
        DataError: A file cannot be read, or only by running code.
        HydraException: An override is invalid.
    """
    chosen = _parser().parse_intermixed_args(arguments)
    # Imported late, so that `--help` and mistyped options are answered at once.
    from hydra.utils import instantiate

    from robust_diffusion.evaluation import evaluate
    from robust_diffusion.evaluation.load import load_checkpoint
    from robust_diffusion.evaluation.zoo import unit_test

    defaults = ["attack=auto", f"threat={'white_box' if chosen.each is None else 'adaptive'}"]
    path, own_class, cfg, choices = composed_model(chosen, defaults, *_read_by(chosen))
    if not path:
        raise ConfigError("checkpoint: missing; name the file of the model's weights")
    threat = OmegaConf.select(cfg, "threat.name")
    if threat not in ("white_box", "adaptive"):
        raise ConfigError(
            f"threat={choices['threat']}: would train models; use white_box or adaptive, or the "
            "surrogates of evaluate in Python"
        )
    if chosen.save:
        check_folder(chosen.save, option="--save")
    datamodule: GraphDataModule = instantiate(cfg.data)
    model = load_checkpoint(own_class or cfg.model, datamodule, path)
    if chosen.unit_test:
        name, graphs = str(datamodule.name), chosen.graphs
        frame = unit_test(model, datamodule, name, seed=cfg.seed, graphs=graphs)
        by_graph = frame.set_index(["made_on", "attack", "flips"])
        table = (100 * by_graph).reset_index()[frame.columns]
        caption = f"accuracy on graphs of {graphs or 'the zoo'}, in %"
        sys.stdout.write(show(Table("", table, caption)))
        return
    if chosen.each is not None:
        _print_each(model, datamodule, cfg, chosen.each, chosen.save)
        return
    report = evaluate(
        model,
        datamodule,
        budget=instantiate(cfg.budget),
        attacks={name: instantiate(options) for name, options in cfg.attacks.items()},
        attacker_knows=cfg.threat.attacker_knows,
        threat=threat,
        seed=cfg.seed,
        store=cfg.paths.store,
    )
    sys.stdout.write(f"{report}\n")
    if chosen.save:
        report.save(chosen.save)


def _parser() -> argparse.ArgumentParser:
    """Return the parser of `robust-diffusion evaluate`."""
    parser = argparse.ArgumentParser(
        prog="robust-diffusion evaluate",
        description="Attack a trained model (by default attack=auto threat=white_box). "
        "model is an option of conf/model/ or a class such as my_code.MyModel, whose "
        "arguments are given as model.KEY=VALUE. Nothing in the checkpoint is run.",
    )
    parser.add_argument(
        "given",
        nargs="*",
        metavar="key=value",
        help="checkpoint=weights.safetensors (or .pt, .ckpt), model=..., and overrides such as "
        "dataset=custom dataset.source.path=graph.npz attack=[auto,pgd] "
        "threat.attacker_knows=labels; +data.normalize=null leaves the features as they are",
    )
    add_config_dir(parser)
    parser.add_argument(
        "--save", metavar="FOLDER", type=path_option, help="write report.json and the graphs there"
    )
    reports = parser.add_mutually_exclusive_group()
    reports.add_argument(
        "--each",
        type=int,
        metavar="EDGES",
        help="attack every target separately with up to this number of edges: flips, or "
        "edges of new nodes if the attack injects",
    )
    reports.add_argument(
        "--unit-test",
        action="store_true",
        help="only test the model on the most harmful graph of each model of the zoo",
    )
    parser.add_argument(
        "--graphs",
        metavar="PATH",
        type=path_option,
        help="with --unit-test: graphs of a file or folder in place of the zoo's, unit_test.npz of "
        "arXiv:2301.13694 or attacked graphs that GRB or DeepRobust wrote",
    )
    return parser


def path_option(text: str) -> Path:
    """Return a path; argparse reports an empty one, which would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("names no folder or file; give one, or leave it out")
    return Path(text)


def add_config_dir(parser: argparse.ArgumentParser) -> None:
    """Add `--config-dir`, which Hydra offers for runs."""
    parser.add_argument(
        "--config-dir",
        type=path_option,
        metavar="FOLDER",
        help="folder with your options, such as flow/my_flow.yaml",
    )


def _read_by(chosen: argparse.Namespace) -> tuple[frozenset[str], str]:
    """Return the top-level config keys that the chosen command reads, and its name."""
    if not chosen.unit_test:
        if chosen.graphs:
            raise ConfigError("--graphs: are read by --unit-test alone; add it")
        if chosen.each is not None:
            return READ - ATTACKED | _read_by_each(chosen.given), "evaluate --each"
        return READ, "evaluate"
    if chosen.save:
        raise ConfigError("--save: evaluate --unit-test writes no report; drop one of them")
    return READ - ATTACKED, "evaluate --unit-test"


def _read_by_each(given: Sequence[str]) -> frozenset[str]:
    """Return what `--each` reads of attacks, which is whether they inject, and of the budget.

    The labels that an attacker knows make no difference up to the first wrong class.
    """
    read = frozenset(["attack", "threat.name"])
    for item in given:
        name, _, value = item.partition("=")
        if name.lower() in ("attack", "attacks"):
            attack = value.strip("[]").lower()
            if attack not in ("auto", "auto_modification", "none"):
                raise ConfigError(
                    f"{item}: evaluate --each has an attack of its own, and only reads whether to "
                    "inject; use auto, which injects, or auto_modification"
                )
            if attack == "auto_modification":
                return read
    return read | {"budget.feature_limits"}


def _print_each(
    model: "nn.Module", data: "GraphDataModule", cfg: DictConfig, most: int, folder: Path | None
) -> None:
    """Print accuracy against edges, overall, by degree and by margin; save the frame if asked."""
    import pandas as pd
    from hydra.utils import instantiate

    from robust_diffusion.evaluation.evaluate_model import attacks_of
    from robust_diffusion.evaluation.single_target import attack_each, right_by_edges

    attacks = attacks_of({name: instantiate(options) for name, options in cfg.attacks.items()})
    kind = next(iter(attacks.values())).kind
    limits = plain_limits(cfg, "evaluate --each")
    options = {"feature_limits": limits, "threat": cfg.threat.name, "seed": cfg.seed}
    frame = attack_each(model, data, most, kind=kind, **options)
    curves = [right_by_edges(frame, by) for by in (None, "degree", "margin")]
    named = [
        curve.set_axis([f"{by} {group}".strip() for group in curve], axis=1)
        for by, curve in zip(("", "degree", "margin"), curves, strict=True)
    ]
    table = (100 * pd.concat(named, axis=1)).reset_index()
    caption = f"targets right, in %, by edges of each ({kind})"
    formats = dict.fromkeys(table.columns, "{:.1f}")
    sys.stdout.write(show(Table("", table, caption, formats=formats)))
    if folder:
        _write(folder / "each.csv", frame.to_csv())


def plain_limits(cfg: DictConfig, command: str) -> tuple[float, float] | None:
    """Return the feature limits of a budget; reject other forms, which `command` lacks."""
    from hydra.utils import instantiate

    budget: Budget = instantiate(cfg.budget)
    if budget.form:
        raise ConfigError(f"budget.features={budget.features}: expected null for {command}")
    return None if budget.feature_limits is None else budget.limits


def _write(path: Path, text: str) -> None:
    write_whole(path, text, option="save")
    sys.stdout.write(f"{path}\n")


def composed_model(
    chosen: argparse.Namespace, defaults: Sequence[str], read: Collection[str], command: str
) -> tuple[str, dict[str, Any], DictConfig, dict[str, Any]]:
    """Compose a command's configuration, for a model of `conf/model/` or any class.

    Args:
        chosen: Parsed arguments of the command, with `given` and `config_dir`.
        defaults: Overrides that come before those of the command line.
        read: Config keys that the command reads, all below a key or a single one.
        command: Name of the command, for messages.

    Returns:
        The checkpoint or "", a custom class with its arguments or {}, the configuration, and the
        option of each group.

    Raises:
        ConfigError: An override sets a key that is not in `read`.
    """
    from robust_diffusion.experiment.overrides import composed

    for item in chosen.given:
        if "=" not in item and not item.startswith("~"):
            raise ConfigError(f"{item}: expected key=value; name weights as checkpoint={item}")
    values = dict(item.partition("=")[::2] for item in chosen.given)
    path, name = values.pop("checkpoint", ""), values.get("model", "")
    target = values.pop("model") if "." in name else ""
    args = [f"{k}={v}" for k, v in values.items() if target and k.lstrip("+").startswith("model.")]
    if attacks := values.pop("attacks", values.pop("attack", "")):
        values["attack"] = re.sub(r"\w+", _known_attack, attacks)
    if gone := [key for key in values if target and key.startswith("~model")]:
        raise ConfigError(f"{gone[0]}: {target} has the arguments that you give; leave this out")
    # Hydra reads `~key=` as the deletion of a key whose value is empty.
    rest = [k + f"={v}" * bool(v or not k.startswith("~")) for k, v in values.items()]
    rest = [item for item in rest if item not in args]
    check_read(rest, read, command, "checkpoint", *sorted(read))
    checked = {*read} - ({"model"} if target else set())
    cfg, choices = composed(rest, checked, chosen.config_dir, defaults)
    return path, own_model(target, args) if target else {}, cfg, choices


def own_model(target: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the configuration of a custom class, with arguments from `model.KEY=VALUE`."""
    values: Any = OmegaConf.from_dotlist([a.lstrip("+").removeprefix("model.") for a in arguments])
    return {"_target_": target, **values}


def _known_attack(name: re.Match[str]) -> str:
    """Return the name of an attack in lower case, and anything else unchanged."""
    from robust_diffusion.attacks.named import attack_names

    return lower if (lower := name[0].lower()) in attack_names() else name[0]


def check_read(overrides: Sequence[str], read: Collection[str], command: str, *shown: str) -> None:
    """Reject an override that a command does not read, and list those that it reads."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    for override in OverridesParser.create().parse_overrides(list(overrides)):
        key = re.sub(r"[/@].*", "", override.get_key_element().lstrip("+~"))
        if not any(f"{key}.".startswith(f"{of}.") or of.startswith(f"{key}.") for of in read):
            remedy = f"{command} does not read it; use {', '.join(shown or read)}"
            raise ConfigError(f"{override.input_line}: {remedy}")
