from dataclasses import replace
from pathlib import Path

import pytest

from robust_diffusion.errors import ConfigError
from robust_diffusion.paper.claims.claim import ACCURACY, Claim, Group, group, load_claims
from robust_diffusion.paper.layout import load_layout, printed_number

EVERY = load_claims()
GROUPS = {g for claim in EVERY.claims.values() for one in claim.comparisons for g in one.groups}
SELECT = {"experiment": "table-1", "attack": "speit", "dataset": "cora"}
BETTER = Claim("a better b", "tab:adv", select=SELECT, left={"model": "beltrami"})


def named(model: str, **axes: str) -> Group:
    return group({**SELECT, "model": model, **axes})


def test_every_combination_of_axes_is_a_comparison() -> None:
    each = {"dataset": ["cora", "citeseer"], "right.model": ["gat", "gin", "appnp"]}
    found = replace(BETTER, each=each).comparisons
    assert len(found) == 6
    assert found[0].label == "cora vs gat"
    left, right = (named(model, dataset="citeseer") for model in ("beltrami", "appnp"))
    assert found[-1].terms == ((1.0, left), (-1.0, right))


def test_a_trend_is_the_change_along_a_straight_line() -> None:
    for number, weights in ((2, [-1, 1]), (3, [-1, 1]), (4, [-0.9, -0.3, 0.3, 0.9])):
        levels = [{"model": model} for model in ("gat", "gin", "appnp", "gcn_svd")[:number]]
        (found,) = replace(BETTER, left={}, test="trend", levels=levels).comparisons
        assert [weight for weight, _ in found.terms] == pytest.approx(weights)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("nope: 1", "nope"),
        ("test: bigger", "test=bigger"),
        ("test: trend", "test=trend"),
        ("left: {model: gta}", "model=gta"),
        ("select: {attack: speit}", "experiment"),
        ("right: {model: beltrami}", "test=greater"),
    ],
)
def test_a_mistake_is_named(change: str, key: str, tmp_path: Path) -> None:
    keys = {
        "quote": "a",
        "place": "p",
        "select": "{experiment: table-1, attack: speit}",
        "left": "{model: beltrami}",
        "right": "{model: gat}",
    }
    keys |= dict([change.split(": ", 1)])
    lines = "".join(f"    {own}: {value}\n" for own, value in keys.items())
    path = tmp_path / "claims.yaml"
    path.write_text(f"alpha: 0.05\nmin_seeds: 3\nelsewhere: {{}}\nclaims:\n  mine:\n{lines}")
    with pytest.raises(ConfigError) as caught:
        load_claims(path)
    assert "mine" in str(caught.value)
    assert key in str(caught.value)


@pytest.mark.parametrize("text", ["claims: [", "claims: {}\n", "- 1\n", None])
def test_a_file_without_claims_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "claims.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"^[^\n]*claims\.yaml[^\n]*$"):
        load_claims(tmp_path / "claims.yaml")


def test_every_group_is_an_entry_of_its_table() -> None:
    assert {g.experiment for g in GROUPS} == {f"table-{n}" for n in range(1, 15) if n != 4}
    for found in GROUPS:
        if found.measure == ACCURACY:
            number = int(found.experiment.removeprefix("table-"))
            assert printed_number({"table": load_layout(number).label, **found.line.printed})
