import os
from pathlib import Path

import pytest

from robust_diffusion.paper.datasets import PAPER_ORDER, published_beside_measured
from tests.data.files import NUM_NODES, write_grb


def test_published_values_stand_beside_measured_ones(tmp_path: Path) -> None:
    write_grb(tmp_path, name="citeseer")
    frame = published_beside_measured(tmp_path)
    assert list(dict.fromkeys(frame["dataset"])) == list(PAPER_ORDER)
    assert len(frame) == 5 * len(PAPER_ORDER)
    citeseer = frame.query("dataset == 'citeseer'").set_index("statistic")
    assert citeseer["published"].to_dict() == {
        "nodes": "3191",
        "edges": "4172",
        "features": "768",
        "classes": "6",
        "feature_range": "-0.96 .. 0.89",
    }
    assert (citeseer.loc["nodes", "measured"], citeseer.loc["nodes", "equal"]) == (
        str(NUM_NODES),
        "no",
    )
    absent = frame.query("dataset != 'citeseer'")
    assert set(absent["measured"]) == {"no data"}
    assert set(absent["equal"]) == {"-"}


@pytest.mark.real_data
@pytest.mark.slow
def test_real_graphs_equal_their_published_statistics() -> None:
    frame = published_beside_measured(os.environ["ROBUST_DIFFUSION_DATA"])
    measured = frame.query("measured != 'no data'")
    assert {"cora", "coauthor", "amazon_computer"} <= set(measured["dataset"])
    assert set(measured["equal"]) == {"yes"}
