"""Parsers of the commands whose work takes seconds to import.

They run before those imports, so that `--help` and mistyped options are answered at once.
"""

import argparse
from pathlib import Path


def path(text: str) -> Path:
    """Return a path; argparse reports an empty one, which would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("names no folder or file; give one, or leave it out")
    return Path(text)


def audit_parser() -> argparse.ArgumentParser:
    """Return the parser of `robust-diffusion audit`."""
    parser = argparse.ArgumentParser(
        prog="robust-diffusion audit",
        description="Check perturbed graphs against the clean graph and a budget, counted from the "
        "graphs themselves. The accuracies of a saved report are measured again. Nothing is "
        "downloaded, and nothing in a file is run.",
    )
    parser.add_argument(
        "given",
        nargs="+",
        metavar="path|key=value",
        help="a folder with GRB's adj.pkl and features.npy, or entries of the store, and overrides "
        "such as dataset=cora, difficulty=easy, budget.max_injected_nodes=50; or a folder of "
        "report.save(), which has its own clean graph, targets and budget",
    )
    parser.add_argument(
        "--kind",
        choices=["injection", "modification"],
        help="kind of attack (default: injection if there are new nodes)",
    )
    parser.add_argument(
        "--merge-duplicates",
        action="store_true",
        help="count an edge that GRB 0.1.0 lists several times once",
    )
    parser.add_argument(
        "--export",
        metavar="FOLDER",
        type=path,
        help="also write each graph as GRB's adj.pkl and features.npy, to FOLDER/<its file's name>",
    )
    parser.add_argument(
        "--model",
        metavar="MODULE.CLASS",
        help="class of the model of a report, see --weights; model.KEY=VALUE gives its arguments",
    )
    parser.add_argument(
        "--weights",
        metavar="FILE",
        type=path,
        help="state_dict of --model, on which the accuracies of a report are measured again "
        "(default: the model of the zoo that has the weights of the report)",
    )
    parser.add_argument("--zoo", type=path, metavar="FOLDER", help="(default: the published one)")
    return parser


def certify_parser() -> argparse.ArgumentParser:
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
    parser.add_argument("--save", metavar="FOLDER", type=path, help="write certificate.json there")
    parser.add_argument(
        "--show",
        metavar="FOLDER",
        type=path,
        action="append",
        help="only print the saved reports in this folder, as one table per scheme",
    )
    return parser


def evaluate_parser() -> argparse.ArgumentParser:
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
        "dataset=custom dataset.source.path=graph.npz attack=[auto,pgd] threat.labels=true; "
        "+data.normalize=null leaves the features as they are",
    )
    add_config_dir(parser)
    parser.add_argument(
        "--save", metavar="FOLDER", type=path, help="write report.json and the graphs there"
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
        type=path,
        help="with --unit-test: graphs of a file or folder in place of the zoo's, unit_test.npz of "
        "arXiv:2301.13694 or attacked graphs that GRB or DeepRobust wrote",
    )
    return parser


def add_config_dir(parser: argparse.ArgumentParser) -> None:
    """Add `--config-dir`, which Hydra offers for runs."""
    parser.add_argument(
        "--config-dir",
        type=path,
        metavar="FOLDER",
        help="folder with your options, such as flow/my_flow.yaml",
    )


PARSERS = {"audit": audit_parser, "certify": certify_parser, "evaluate": evaluate_parser}
