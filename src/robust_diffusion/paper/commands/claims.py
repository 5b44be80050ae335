"""`robust-diffusion claims`: which of the paper's sentences the records support."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from robust_diffusion.checks import check_choice
from robust_diffusion.commands.reading import add_records_option, read_chosen
from robust_diffusion.paper.claims.claim import CLAIMS, load_claims
from robust_diffusion.paper.claims.judge import VERDICTS, Row, side_by_side, variants_of
from robust_diffusion.paper.claims.show import claims_table, legend, to_json
from robust_diffusion.paper.commands.options import FIDELITIES


def run_claims_command(arguments: Sequence[str]) -> None:
    """Judge the paper's claims; the exit status is 0 whatever the verdicts."""
    chosen = _parser().parse_args(arguments)
    claims = load_claims(chosen.claims)
    for name in chosen.names:
        check_choice("claim", name, claims.claims)
    records = read_chosen(chosen.records)
    variants = [chosen.fidelity] if chosen.fidelity else variants_of(records)
    rows = side_by_side(claims, records, variants, chosen.names)
    if chosen.format == "json":
        sys.stdout.write(to_json(rows, claims) + "\n")
        return
    counts = "; ".join(f"{name}: {_counts(rows, name)}" for name in variants)
    table = claims_table([(row, f"{row.name}: {row.claim.quote}") for row in rows])
    elsewhere = "".join(f'- "{quote}": {where}\n' for quote, where in claims.elsewhere.items())
    sys.stdout.write(
        f"Claims of arXiv:2209.07754 by records. {counts}. {legend(claims.alpha, variants[0])}"
        f"\n\n{table}\n\nNot decided by records:\n{elsewhere}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="robust-diffusion claims",
        description="Judge the paper's sentences on the records: by each variant, by the printed "
        "means and under the worst case of each model.",
    )
    parser.add_argument("names", nargs="*", metavar="claim", help="claims to judge (default: all)")
    add_records_option(parser)
    parser.add_argument("--claims", default=CLAIMS, type=Path, help="file of claims")
    parser.add_argument(
        "--fidelity",
        choices=FIDELITIES,
        help="variant of the paper that counts (default: each that was run)",
    )
    parser.add_argument("--format", choices=["markdown", "json"], default="markdown")
    return parser


def _counts(rows: Sequence[Row], variant: str) -> str:
    verdicts = [found.verdict for row in rows if (found := row.columns[variant])]
    return ", ".join(f"{verdicts.count(kind)} {kind}" for kind in VERDICTS)
