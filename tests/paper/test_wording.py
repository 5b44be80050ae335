import pytest

from robust_diffusion.paper.layout import load_layout
from robust_diffusion.paper.wording import Notes, compared, difference, measured
from robust_diffusion.results.entry import Entry, Mark, Reported
from robust_diffusion.results.numbers import p_value, places_for, spread
from tests.paper.records import failed, finished
from tests.paper.tables import build_table


def entry(mean: float | None, printed: float | None = None, **options: object) -> Entry:
    return Entry({}, "clean", Reported(printed), "measured", mean=mean, **options)  # type: ignore[arg-type]


def without(kind: str, text: str) -> Entry:
    mark = Mark(kind, text)  # type: ignore[arg-type]
    return Entry({}, "clean", Reported(), kind, marks=(mark,))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mean", "std", "decimals", "text"),
    [
        (61.874, 0.495, 2, "61.87 ± 0.49"),
        (61.876, None, 2, "61.88"),
        (None, None, 2, "-"),
        (50.0, None, 0, "50"),
        (35.82, 0.0, 2, "35.82 ± 0.00"),
    ],
)
def test_spread(mean: float | None, std: float | None, decimals: int, text: str) -> None:
    assert spread(mean, std, decimals) == text


@pytest.mark.parametrize(
    ("mean", "printed", "text"),
    [
        (61.0, 62.5, "\N{MINUS SIGN}1.50"),
        (62.5, 61.0, "+1.50"),
        (62.501, 62.5, "0.00"),
        (62.499, 62.5, "0.00"),
        (None, 62.5, "-"),
        (62.5, None, "-"),
    ],
)
def test_a_difference_has_a_sign_unless_it_is_nothing(
    mean: float | None, printed: float | None, text: str
) -> None:
    assert difference(entry(mean, printed), 2) == text


@pytest.mark.parametrize(("p", "text"), [(0.0004, "< 0.001"), (0.0123, "0.012"), (1.0, "1")])
def test_p_values_have_two_digits(p: float, text: str) -> None:
    assert p_value(p) == text


@pytest.mark.parametrize(
    ("kind", "text", "shown"),
    [
        ("failed", "failed: seed=-1: too small", "failed: seed=-1: too small"),
        (
            "no data",
            "no data: /a/b/adj.npz: not found; put it there",
            "no data: adj.npz: not found",
        ),
        (
            "no data",
            "no data: a/adj.npz: not found anywhere at all",
            "no data: adj.npz: not found…",
        ),
        ("failed", f"failed: {'x' * 60}", f"failed: {'x' * 21}…"),
    ],
)
def test_a_reason_is_short_enough_for_a_cell(kind: str, text: str, shown: str) -> None:
    assert measured(without(kind, text), 2) == shown


def test_equal_notes_have_one_number() -> None:
    records = [failed("broken"), failed("gone", "DataError", flow="heat"), finished(flow="grand")]
    table = build_table(load_layout(3), records)
    notes = Notes(table)
    assert notes.texts == ["no data: gone", "failed: broken"]
    cora = [notes.numbers(e) for _, _, e in table if e.keys["dataset"] == "cora"]
    assert cora == [[1], [], [], [2]] * 3


def time(mean: float, printed: float | None = 4.0) -> Entry:
    return entry(mean, printed, timed=True, quartiles=(0.9 * mean, 1.1 * mean))


@pytest.mark.parametrize(
    ("mean", "text"),
    [
        (0.05, "0.0500 (0.0450\N{EN DASH}0.0550)"),
        (9.876, "9.88 (8.89\N{EN DASH}10.86)"),
        (1234.0, "1234 (1111\N{EN DASH}1357)"),
    ],
)
def test_a_time_has_three_digits_and_its_quartiles(mean: float, text: str) -> None:
    assert measured(time(mean), 0) == text


def test_times_compare_by_their_factor() -> None:
    assert compared(time(5.0), 0) == "×1.2"
    assert compared(time(0.3), 0) == "×0.075"
    assert compared(time(5.0, None), 0) is None
    assert time(5.0).difference is None
    assert entry(5.0, 4.0).factor is None
    assert compared(entry(5.0, 4.0), 1) == "+1.0"
    assert compared(entry(None, 4.0), 1) is None


@pytest.mark.parametrize(
    ("value", "places"), [(0.0, 0), (0.0123, 4), (1.0, 2), (99.9, 1), (1e4, 0)]
)
def test_places_give_so_many_digits_in_all(value: float, places: int) -> None:
    assert places_for(value, digits=3) == places
