"""`robust-diffusion claims`: which of the paper's sentences the records support."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from robust_diffusion.checks import check_choice
from robust_diffusion.commands.records import add_records_option, read_chosen
from robust_diffusion.evaluation.records import Record
from robust_diffusion.paper.claims import (
    CLAIMS,
    Judgement,
    judge,
    load_claims,
    published_evidence,
    recorded_evidence,
)
from robust_diffusion.paper.claims.judgement import Verdict
from robust_diffusion.paper.claims.show import LEFT, as_frame, as_json, to_json
from robust_diffusion.paper.commands.options import FIDELITIES
from robust_diffusion.paper.printed import ASSUMED_RUNS
from robust_diffusion.results.cells import RecordSet
from robust_diffusion.results.markdown import print_table


def run_claims_command(arguments: Sequence[str]) -> None:
    """Judge the paper's claims; the exit status is 0 whatever the verdicts."""
    chosen = _parser().parse_args(arguments)
    claims = load_claims(chosen.claims)
    for name in chosen.names:
        check_choice("claim", name, claims.claims)
    wanted = [claims.claims[name] for name in chosen.names or claims.claims]
    records = read_chosen(chosen.records)
    printed = [judge(claim, published_evidence, claims) for claim in wanted]
    by_fidelity: dict[str, list[Judgement]] = {}
    for fidelity in [chosen.fidelity] if chosen.fidelity else _fidelities(records):
        evidence = recorded_evidence(RecordSet.of(records, fidelity=fidelity))
        by_fidelity[fidelity] = [judge(claim, evidence, claims) for claim in wanted]
    if chosen.format == "json":
        shown = {
            "alpha": claims.alpha,
            "min_seeds": claims.min_seeds,
            "fidelity": {name: as_json(found, printed) for name, found in by_fidelity.items()},
            "elsewhere": dict(claims.elsewhere),
        }
        sys.stdout.write(to_json(shown) + "\n")
        return
    for fidelity, found in by_fidelity.items():
        print_table(_title(found, fidelity, claims.alpha), as_frame(found, printed), LEFT)
    elsewhere = "".join(f'- "{quote}": {where}\n' for quote, where in claims.elsewhere.items())
    sys.stdout.write(f"\nNot decided by records:\n{elsewhere}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="robust-diffusion claims",
        description="Judge the paper's sentences on the records. `printed` is the verdict "
        "on the paper's own means and deviations; g is Hedges' effect size.",
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


def _fidelities(records: Sequence[Record]) -> list[str]:
    """Every variant that was run; the default one if none was."""
    found = dict.fromkeys(record["fidelity"] for record in records if record.get("fidelity"))
    return sorted(found) or ["paper"]


def _title(judgements: Sequence[Judgement], fidelity: str, alpha: float) -> str:
    verdicts = [judgement.verdict for judgement in judgements]
    counts = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in get_args(Verdict))
    return (
        f"Claims of arXiv:2209.07754 by records, fidelity={fidelity}: {counts}; each tested at "
        f"{100 * alpha:g} %, as is each part where all have to hold; effects in points of "
        "accuracy, × a factor; printed: by the paper's own means and deviations, of "
        f"{ASSUMED_RUNS} runs each"
    )
