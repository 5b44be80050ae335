"""WordNet, as `benchmarks/wordnet.py` reads it, on a cut of its files."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robust_diffusion.data.sources import load_custom

CUT = Path(__file__).parents[1] / "wordnet"
ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "benchmarks" / "wordnet.py"


@pytest.fixture(scope="module")
def read_wordnet() -> Callable[..., dict[str, Any]]:
    return runpy.run_path(str(PROGRAM))["read_wordnet"]


@pytest.fixture(scope="module")
def arrays(read_wordnet: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return read_wordnet(CUT, fewest=2)


def test_every_synset_is_a_node_of_a_class_and_words(
    arrays: dict[str, Any], tmp_path: Path
) -> None:
    np.savez(tmp_path / "wordnet.npz", **arrays)
    graph = load_custom(tmp_path / "wordnet.npz")
    lines = [
        line
        for file in sorted(CUT.iterdir())
        for line in file.read_text("latin-1").splitlines()
        if not line.startswith(" ")
    ]
    assert graph.num_nodes == len(lines) == 60
    assert graph.num_classes == len({line.split()[1] for line in lines})
    assert graph.x.unique().tolist() == [0, 1]
    assert graph.x.sum(0).min() == 2


def test_a_relation_is_an_edge_in_both_directions_once(arrays: dict[str, Any]) -> None:
    lines = (CUT / "data.noun").read_text("latin-1").splitlines()
    nouns = [line.split()[4] for line in lines if not line.startswith(" ")]
    pairs = list(map(tuple, arrays["edge_index"].T.tolist()))
    assert len(set(pairs)) == len(pairs)
    assert all((end, node) in pairs and node != end for node, end in pairs)
    assert (nouns.index("breathing"), nouns.index("eupnea")) in pairs
    assert (nouns.index("hypopnea"), nouns.index("eupnea")) not in pairs


def test_a_word_of_fewer_glosses_is_no_feature(read_wordnet: Callable[..., dict[str, Any]]) -> None:
    widths = [read_wordnet(CUT, fewest=fewest)["attr_shape"][1] for fewest in (1, 2, 50)]
    assert widths[0] > widths[1] > widths[2]


def test_the_page_quotes_the_attacks_whose_passes_were_forecast_within_a_factor_of_two() -> None:
    page = (ROOT / "docs" / "guides" / "data.md").read_text()
    recorded = json.loads((ROOT / "benchmarks" / "results" / "large.json").read_text())
    runs = [run for run in recorded.values() if "measured_by_forecast" in run]
    assert runs
    for run in runs:
        assert 1 / 2 <= run["measured_by_forecast"]["forwards"] <= 2
        (model,) = run["options"]["models"]
        clean, attacked = (100 * run["accuracy"][kind] for kind in ("clean", "auto"))
        passes, expected = run["forwards"], run["forecast"]["forwards"]
        seconds, memory = run["processor_seconds"]["auto"], run["peak_gib"]["auto"]
        assert (
            f"| {model.upper()} | {run['nodes']:,} | {clean:.1f} to {attacked:.1f} "
            f"| {passes} ({expected}) | {seconds:.0f} | {memory:.1f} |"
        ) in page
