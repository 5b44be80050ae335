from robust_diffusion.paper.page.charts.labels import Labels


def test_a_label_stands_right_of_its_point_where_there_is_room() -> None:
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
