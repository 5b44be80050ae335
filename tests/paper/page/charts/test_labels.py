import itertools

from hypothesis import given
from hypothesis import strategies as st

from robust_diffusion.paper.page.charts.labels import Labels, spread_out


def test_a_label_prefers_the_right() -> None:
    assert Labels(0, 300, 0, 200).place("Heat", 100, 100) == (109, 104, False)


def test_a_label_stays_inside() -> None:
    left, _, far = Labels(0, 300, 0, 200).place("Beltrami", 290, 100)
    assert left < 240
    assert not far


def test_labels_do_not_cover_each_other() -> None:
    labels = Labels(0, 300, 0, 200)
    places = [labels.place("Heat", 150, 100)[:2] for _ in range(5)]
    for i, (x, y) in enumerate(places):
        for other_x, other_y in places[i + 1 :]:
            assert abs(x - other_x) >= 27 or abs(y - other_y) >= 11


def test_a_crowded_point_gets_its_label_from_afar() -> None:
    labels = Labels(0, 300, 0, 200)
    labels.occupy(100, 80, 100, 40)
    assert labels.place("Heat", 150, 100)[2]


@given(st.lists(st.floats(0, 100), max_size=8))
def test_labels_keep_their_distance_and_order(wanted: list[float]) -> None:
    places = spread_out(wanted, 12, 0, 100)
    assert all(-1e-9 <= place <= 100 + 1e-9 for place in places)
    ordered = sorted(places)
    assert all(b - a >= 12 - 1e-9 for a, b in itertools.pairwise(ordered))
    for (a, x), (b, y) in itertools.combinations(zip(wanted, places, strict=True), 2):
        assert (a <= b) == (x < y) or a == b


def test_labels_with_room_stay_where_they_are() -> None:
    assert spread_out([50, 10, 90], 12, 0, 100) == [50, 10, 90]
