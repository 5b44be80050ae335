import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.printed import printed_number, printed_rows

BELTRAMI = {"table": "flows", "dataset": "cora", "attack": "speit", "model": "beltrami"}


def test_a_number_of_the_paper() -> None:
    found = printed_number(BELTRAMI)
    assert (found.mean, found.std, found.budget) == (61.87, 0.49, (50, 50))


def test_a_dash_of_the_paper_is_no_number() -> None:
    where = {"table": "adv", "dataset": "pubmed", "attack": "clean", "model": "gcn_svd"}
    found = printed_number(where)
    assert (found.mean, found.std) == (None, None)


@pytest.mark.parametrize("where", [BELTRAMI | {"model": "nope"}, {"table": "flows"}])
def test_what_names_not_exactly_one_is_refused(where: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"table: \d+ printed numbers with table=flows"):
        printed_number(where)


def test_every_printed_number_is_one() -> None:
    for row in printed_rows():
        assert row["mean"] or not row["std"]
        assert not row["mean"] or float(row["mean"]) >= 0
    keys = [tuple(v for k, v in row.items() if k not in ("mean", "std")) for row in printed_rows()]
    assert len(keys) == len(set(keys))
