from itertools import product

import pytest

from robust_diffusion.results.effects import show_effects


def test_effects_of_a_half_fraction_are_those_it_was_made_of() -> None:
    records = []
    for seed, (a, b, c) in product(range(3), product((0, 1), repeat=3)):
        accuracy = 0.5 + 0.06 * a - 0.02 * b + 0.01 * seed + 0.001 * (-1) ** (a + b + c + seed)
        d = (a + b + c) % 2
        options = {"x.a": "on" if a else "off", "x.b": str(b), "x.c": str(c), "x.d": str(d)}
        options |= {"x.floor": f"{a}.1", "seed": str(seed), "dataset": "cora"}
        records.append({"seed": seed, "overrides": options, "accuracy": {"tdgia": accuracy}})
    records.append({**records[0], "seed": 3})  # a seed that was broken off
    table = show_effects(records)
    assert "8 settings and 3 seeds" in table.title
    switches = list(table.cells["switch"])
    assert switches == ["a=on, floor=1.1", "b=1", "c=1", "d=1"]
    effects = [float(text.split()[0].replace("−", "-")) for text in table.cells["effect on tdgia"]]
    assert effects == pytest.approx([6, -2, 0, 0], abs=0.1)
    assert "(p < 0.001)" in table.cells["effect on tdgia"][1]
