"""`robust-diffusion certify`: accuracy that no attack within a budget can reduce."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from robust_diffusion.commands.evaluate import (
    ATTACKED,
    add_config_dir,
    composed_model,
    path_option,
    plain_limits,
)
from robust_diffusion.commands.evaluate import READ as OF_EVALUATE
from robust_diffusion.commands.reading import check_options
from robust_diffusion.errors import ConfigError
from robust_diffusion.results.show import Table, show
from robust_diffusion.system.files import check_folder

if TYPE_CHECKING:
    from torch import nn

    from robust_diffusion.certificates import Smoothing
    from robust_diffusion.data import GraphDataModule

_READ = OF_EVALUATE - ATTACKED | {
    *("attack", "attacks", "budget.feature_limits", "certificate", "threads")
}
"""Config keys that the command reads, all below a key or a single one."""

_TRAINING = frozenset(["data", "trainer", "training"])
"""Further ones, if it trains the model itself."""


def run_certify_command(arguments: Sequence[str]) -> None:
    """Certify the smoothed form of a model, print the table, and save the report if asked.

    Raises:
        ConfigError: The model cannot be built or certified, or the weights do not fit it.
        DataError: A file cannot be read, or only by running code.
        TrainingError: The loss is not finite.
        HydraException: An override is invalid.
    """
    chosen = (parser := _parser()).parse_intermixed_args(arguments)
    # Imported late, so that `--help` and mistyped options are answered at once.
    from robust_diffusion.certificates.report import certificate_tables, read_certificates
    from robust_diffusion.checks import Natural, check_value

    if chosen.show:
        check_options(parser, chosen, {"show"}, "certify --show")
        for title, frame in certificate_tables(read_certificates(chosen.show)).items():
            sys.stdout.write(f"{show(Table('', frame, title))}\n")
        return
    check_value("--local", chosen.local, Natural)
    if chosen.save:
        check_folder(chosen.save, option="--save")
    from hydra.utils import instantiate

    from robust_diffusion.certificates import certify
    from robust_diffusion.certificates.certify_model import attacks_of_kind, local_sample
    from robust_diffusion.evaluation.load import load_checkpoint, set_up_process
    from robust_diffusion.system.arithmetic import set_threads

    defaults = ["certificate=sparse", "attack=none"]
    trained = any(item.startswith("checkpoint=") for item in chosen.given)
    if trained and chosen.clean_training:
        raise ConfigError("--clean-training: not read with checkpoint=, which is trained; drop one")
    read, command = (_READ, "certify checkpoint=...") if trained else (_READ | _TRAINING, "certify")
    path, own_class, cfg, _ = composed_model(chosen, defaults, read, command)
    if not cfg.certificate:
        raise ConfigError("certificate=none: expected a scheme; use sparse or bi_smoothing")
    set_up_process(cfg.threads)
    scheme: Smoothing = instantiate(cfg.certificate)
    # First, so that attacks that do not fit raise before anything is trained.
    attacks = attacks_of_kind({k: instantiate(v) for k, v in cfg.attacks.items()}, scheme)
    limits = plain_limits(cfg, "certify")
    datamodule: GraphDataModule = instantiate(cfg.data)
    datamodule.setup()
    set_threads(cfg.threads, datamodule.graph.num_edges)
    local_sample(datamodule.graph, datamodule.target_nodes, chosen.local, cfg.seed)
    if path:
        model = load_checkpoint(own_class or cfg.model, datamodule, path)
    else:
        noise = None if chosen.clean_training else scheme
        model = _trained(cfg, own_class, datamodule, noise)
    report = certify(
        model,
        datamodule,
        certificate=scheme,
        attacks=attacks,
        feature_limits=limits,
        local=chosen.local,
        seed=cfg.seed,
        store=cfg.paths.store,
    )
    sys.stdout.write(f"{report}\n")
    if chosen.save:
        report.save(chosen.save)


def _parser() -> argparse.ArgumentParser:
    """Return the parser of `robust-diffusion certify`."""
    parser = argparse.ArgumentParser(
        prog="robust-diffusion certify",
        description="Certify the smoothed form of a model at the target nodes, and attack that "
        "form if attacks are named. Without a checkpoint the model is first trained on noisy "
        "graphs. model is an option of conf/model/, or a class with arguments model.KEY=VALUE.",
    )
    parser.add_argument(
        "given",
        nargs="*",
        metavar="key=value",
        help="certificate=sparse (default) or bi_smoothing, certificate.samples=10000, model=..., "
        "dataset=..., attack=[auto] or [prbcd,grbcd], checkpoint=weights.safetensors, training...",
    )
    add_config_dir(parser)
    parser.add_argument(
        "--clean-training", action="store_true", help="train on the clean graph, without noise"
    )
    parser.add_argument(
        "--local",
        metavar="N",
        type=int,
        default=0,
        help="certify a sample of N targets, and attack each separately with the whole budget",
    )
    parser.add_argument(
        "--save", metavar="FOLDER", type=path_option, help="write certificate.json there"
    )
    parser.add_argument(
        "--show",
        metavar="FOLDER",
        type=path_option,
        action="append",
        help="only print the saved reports in this folder, as one table per scheme",
    )
    return parser


def _trained(
    cfg: DictConfig,
    own_class: Mapping[str, Any],
    datamodule: "GraphDataModule",
    scheme: "Smoothing | None",
) -> "nn.Module":
    """Train the model as a run would, but on noisy graphs if `scheme` is not `None`."""
    from robust_diffusion.certificates import NoisyModel
    from robust_diffusion.evaluation.load import build_model, train_composed

    def build(in_channels: int, out_channels: int) -> "nn.Module":
        model = build_model(own_class or cfg.model, in_channels, out_channels)
        return model if scheme is None else NoisyModel(model, scheme, seed=cfg.seed)

    key: dict[str, Any] = {"model": own_class} if own_class else {}
    if scheme is not None:
        key["noise"] = {"scheme": scheme.name, **scheme.probabilities}
    name = (own_class or cfg.model)["_target_"]
    description = f"{datamodule.name} {name if own_class else name.rpartition('.')[2]}"
    trained = train_composed(cfg, datamodule, build=build, cache_key=key, description=description)
    return trained.model.model if isinstance(trained.model, NoisyModel) else trained.model
