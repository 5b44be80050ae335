import os

import pytest

from robust_diffusion.paper.agreement import published_beside_measured


@pytest.mark.real_data
@pytest.mark.slow
def test_real_graphs_equal_their_published_statistics() -> None:
    frame = published_beside_measured(os.environ["ROBUST_DIFFUSION_DATA"])
    measured = frame.query("measured != 'no data'")
    assert {"cora", "coauthor", "amazon_computer"} <= set(measured["dataset"])
    differing = measured[measured["equal"] != "yes"]
    assert set(differing["dataset"] + " " + differing["statistic"]) <= {"pubmed edges"}
    assert set(differing["equal"]) <= {"documented"}
