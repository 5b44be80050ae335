"""Command-line option for the variant of the paper."""

import argparse

from robust_diffusion.config import CONFIG_DIR

FIDELITIES = tuple(sorted(path.stem for path in CONFIG_DIR.glob("fidelity/*.yaml")))
"""Variants of the paper: its equations, and the authors' released code."""


def add_fidelity_option(parser: argparse.ArgumentParser) -> None:
    """Let a command take the variant whose records count."""
    parser.add_argument(
        "--fidelity",
        choices=FIDELITIES,
        default="paper",
        help="variant of the paper (default: paper)",
    )
