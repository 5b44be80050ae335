import math

import pytest

from robust_diffusion.paper.claims.evidence import Sample, published_evidence, recorded_evidence
from robust_diffusion.paper.claims.group import group
from tests.paper.claims.synthetic import records_of
from tests.paper.records import finished, timed

GAT = {"model": "gat", "dataset": "cora"}
WANTED = group({"experiment": "table-1", "attack": "speit", **GAT})
VALUES = [40.0, 42.0, 41.0]


def recorded(*records: dict[str, object], fidelity: str = "paper") -> Sample:
    return recorded_evidence(list(records), fidelity=fidelity)(WANTED)


def test_values_are_points_by_seed() -> None:
    sample = recorded(*records_of("table-1", GAT, {"clean": [80.0] * 3, "speit": VALUES}))
    assert sample.values == pytest.approx({0: 40.0, 1: 42.0, 2: 41.0})
    assert sample.count == 3
    assert sample.moments is not None
    assert (sample.moments.mean, sample.moments.variance) == pytest.approx((41.0, 1.0))


def test_only_the_wanted_cells_count() -> None:
    speit = {"speit": VALUES}
    others = [
        *records_of("table-3", GAT, speit),
        *records_of("table-1", GAT | {"model": "gin"}, speit),
        *records_of("table-1", GAT | {"dataset": "citeseer"}, speit),
        *records_of("table-1", GAT, {"tdgia": VALUES}),
        *records_of("table-1", GAT, speit, fidelity="released"),
        *records_of("table-1", GAT, speit, scale="smoke"),
    ]
    assert recorded(*others).count == 0


def test_other_measures_are_logarithms() -> None:
    records = records_of("table-1", GAT, {"clean": VALUES}, nfe=8, seconds={"train": 2.0})
    evidence = recorded_evidence(records, fidelity="paper")
    for measure, value in (("nfe", 8), ("seconds.train", 2)):
        sample = evidence(group({"experiment": "table-1", "measure": measure, **GAT}))
        assert sample.values == pytest.approx(dict.fromkeys(range(3), math.log(value)))
    nothing = group({"experiment": "table-1", "measure": "seconds.nope", **GAT})
    assert evidence(nothing).count == 0


def test_times_are_those_of_timing_cells_alone() -> None:
    tested = finished(experiment="table-7", dataset="citeseer", seconds={"diffusion": 7.0})
    timings = [timed(0.01 * (seed + 1), seed=seed) for seed in range(3)]
    evidence = recorded_evidence([*timings, tested], fidelity="paper")
    beltrami = {"experiment": "table-7", "dataset": "citeseer", "model": "beltrami", "tau": 2}
    times = evidence(group({**beltrami, "measure": "seconds.diffusion"}))
    assert times.values == pytest.approx({i: math.log(0.01 * (i + 1)) for i in range(3)})
    # What a diffusion takes in evaluations is not what a forward pass takes.
    assert evidence(group({**beltrami, "measure": "nfe"})).count == 0
    assert evidence(group({**beltrami, "attack": "clean"})).count == 1


def test_spread_is_the_distance_from_the_median() -> None:
    sample = Sample.of({0: 40.0, 1: 44.0, 2: 41.0}).spread()
    assert sample.values == {0: 1.0, 1: 3.0, 2: 0.0}
    assert Sample().spread().count == 0


def test_the_papers_own_numbers() -> None:
    sample = published_evidence(WANTED)
    assert sample.moments is not None
    assert (sample.moments.mean, sample.moments.variance) == pytest.approx((38.10, 2.48**2))
    assert sample.count == 5
    assert not sample.values


def test_unpublished_numbers_are_empty_samples() -> None:
    dash = {"experiment": "table-1", "dataset": "pubmed", "attack": "speit", "model": "gcn_svd"}
    assert published_evidence(group(dash)).count == 0
    assert published_evidence(group({"experiment": "table-1", "measure": "nfe", **GAT})).count == 0
    assert published_evidence(WANTED).spread().count == 0
