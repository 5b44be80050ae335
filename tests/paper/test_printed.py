import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.layout import load_layout, printed_number, printed_rows, table_numbers

BELTRAMI = {"table": "flows", "dataset": "cora", "attack": "speit", "model": "beltrami"}


@pytest.mark.parametrize("where", [BELTRAMI | {"model": "nope"}, {"table": "flows"}])
def test_what_names_not_exactly_one_is_refused(where: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"table: \d+ printed numbers with table=flows"):
        printed_number(where)


def test_every_printed_number_is_one() -> None:
    rows = [row for number in table_numbers() for row in printed_rows(load_layout(number).label)]
    for row in rows:
        assert row["mean"] or not row["std"]
        assert not row["mean"] or float(row["mean"]) >= 0
    keys = [tuple(v for k, v in row.items() if k not in ("mean", "std")) for row in rows]
    assert len(keys) == len(set(keys))
