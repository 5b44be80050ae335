import re
from pathlib import Path
from typing import Any

import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.claims import CLAIMS, load_claims
from robust_diffusion.paper.claims.claim import parse_claim
from robust_diffusion.paper.claims.group import ACCURACY, Group, group
from robust_diffusion.paper.layout import load_layout
from robust_diffusion.paper.printed import printed_number

BASE: dict[str, Any] = {"quote": "a better b", "place": "tab:adv", "test": "greater"}
SIDES: dict[str, Any] = {
    "select": {"experiment": "table-1", "attack": "speit", "dataset": "cora"},
    "left": {"model": "beltrami"},
    "right": {"model": "gat"},
}
EVERY = load_claims()
GROUPS = sorted(
    {g for claim in EVERY.claims.values() for member in claim.members() for g in member.groups},
    key=repr,
)


def named(model: str, **axes: str) -> Group:
    return group({"experiment": "table-1", "attack": "speit", "model": model, **axes})


def test_every_combination_of_axes_is_a_member() -> None:
    each = {"dataset": ["cora", "citeseer"], "right.model": ["gat", "gin", "appnp"]}
    members = parse_claim("name", BASE | SIDES | {"each": each}).members()
    assert len(members) == 6
    assert members[0].label == "cora vs gat"
    assert members[-1].dataset == "citeseer"
    assert members[-1].terms == (
        (1.0, named("beltrami", dataset="citeseer")),
        (-1.0, named("appnp", dataset="citeseer")),
    )


def test_an_axis_may_belong_to_one_side_a_list_is_a_mean() -> None:
    (member,) = parse_claim("name", BASE | SIDES | {"each": {"left.attack": ["tdgia"]}}).members()
    assert [g.graph for _, g in member.terms] == ["tdgia", "speit"]
    right = {"right": {"model": ["gat", "gin", "appnp"]}}
    (member,) = parse_claim("name", BASE | SIDES | right).members()
    assert [weight for weight, _ in member.terms] == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])


def test_terms_of_one_group_are_one_term() -> None:
    weights = (1, "gat"), (1, "gat"), (-1, "gin"), (1, "appnp"), (-1, "appnp")
    terms = [{"weight": weight, "model": model} for weight, model in weights]
    keys = {"test": "contrast", "select": SIDES["select"], "terms": terms}
    (member,) = parse_claim("name", BASE | keys).members()
    axes = {"dataset": "cora"}
    assert member.terms == ((2.0, named("gat", **axes)), (-1.0, named("gin", **axes)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"quote": None}, ["claims.name.quote", "missing"]),
        ({"test": "bigger"}, ["claims.name.test=bigger", "greater"]),
        ({"over": "most"}, ["claims.name.over=most", "average"]),
        ({"nope": 1}, ["claims.name=nope", "margin"]),
        ({"margin": "wide"}, ["claims.name.margin=wide", "finite number"]),
        ({"test": "trend"}, ["claims.name.levels", "test=trend needs it"]),
        ({"test": "contrast", "terms": []}, ["claims.name.terms", "needs it"]),
        ({"left": {"model": "gta"}}, ["claims.name", "table.model=gta", "beltrami"]),
        ({"left": {"flow": "heat"}}, ["claims.name", "table.axis=flow"]),
        ({"select": {"experiment": "table-1"}}, ["claims.name", "attack: missing"]),
        ({"select": {"attack": "speit"}}, ["claims.name", "experiment: missing"]),
    ],
)
def test_a_mistake_is_named(change: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_claim("name", BASE | SIDES | change)
    for word in words:
        assert word in str(caught.value)


def test_front_pages_have_at_most_eight_claims(tmp_path: Path) -> None:
    assert 0 < len(EVERY.front) <= 8
    assert set(EVERY.front) <= set(EVERY.claims)
    names = list(EVERY.claims)
    for front, words in ((names[:9], "9 claims; name at most 8"), (["nope"], "front=nope")):
        path = tmp_path / "claims.yaml"
        path.write_text(CLAIMS.read_text() + f"\nfront: {dict.fromkeys(front, 'title')}\n")
        text = re.sub(r"^front:(?! \{).*\n(  .*\n)*", "", path.read_text(), flags=re.MULTILINE)
        path.write_text(text)
        with pytest.raises(ConfigError, match=words):
            load_claims(path)


@pytest.mark.parametrize("text", ["claims: [", "claims: {}\n", "- 1\n", None])
def test_a_file_without_claims_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "claims.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_claims(tmp_path / "claims.yaml")
    assert "claims.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_table_of_results_has_claims() -> None:
    about = {g.experiment for g in GROUPS}
    assert about == {f"table-{number}" for number in range(1, 15) if number != 4}


@pytest.mark.parametrize(
    "found",
    [g for g in GROUPS if g.measure == ACCURACY],
    ids=lambda g: "-".join([g.experiment, *(value for _, value in g.axes)]),
)
def test_every_group_is_an_entry_of_its_table(found: Group) -> None:
    number = int(found.experiment.removeprefix("table-"))
    assert printed_number({"table": load_layout(number).label, **found.line.printed})


def test_no_two_claims_say_the_same() -> None:
    said = [(c.quote, c.reading) for c in EVERY.claims.values()]
    assert len(set(said)) == len(said)
    assert not {c.quote for c in EVERY.claims.values()} & set(EVERY.elsewhere)
