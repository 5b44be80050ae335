"""Odd values of every key that `conf/` gives to an object: taken, or refused by name."""

import math
import re
from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import Annotated, Any, Protocol, get_args, get_origin

import numpy as np
import pytest
from annotated_types import Ge, Gt, Le
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from robust_diffusion import Budget, GraphPDE, Solver
from robust_diffusion.attacks import FGSM, TDGIA, Attack, GivenGraph, InjectionAdversary
from robust_diffusion.checks import (
    check_argument,
    check_choice,
    check_name,
    check_value,
    parameters_of,
)
from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.errors import ConfigError
from robust_diffusion.experiment.overrides import check_keys
from robust_diffusion.flows import Flow
from robust_diffusion.models import GCN
from robust_diffusion.training import Fit
from tests.graphs import without_type_checks

TEXTS = [path.read_text(encoding="utf-8") for path in CONFIG_DIR.rglob("*.yaml")]
TARGETS = sorted(set(re.findall(r"_target_: (robust_diffusion\.[\w.]+)", "".join(TEXTS))))
KEYS = [
    (target, key)
    for target in TARGETS
    for key, parameter in parameters_of(resolve_name(target)).items()
    if parameter.annotation is not parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
]


def number_of(target: str, key: str) -> Any:
    """The number with a range that a key takes, if it takes one and nothing else."""
    kind = parameters_of(resolve_name(target))[key].annotation
    return kind if get_origin(kind) is Annotated and get_args(kind)[0] in (int, float) else None


TwoOrMore = Annotated[int, Ge(2)]


def bounds(kind: Any) -> tuple[Any, ...]:
    return get_args(kind)[1:]


ODD = st.sampled_from(
    [-1, 0, 1.5, math.nan, math.inf, 10**40, 1e30, 2**31, "x", "no", None, True, [], {}, ["a"]]
)
REQUIRED: dict[type, dict[str, Any]] = {
    Flow: {"channels": 4},
    Attack: {},
    GivenGraph: {"path": "graph.npz"},
    Solver: {"method": "rk4", "num_steps": 1},
    Budget: {"max_injected_nodes": 1, "max_edges_per_injected_node": 1},
}


@given(st.sampled_from(KEYS), ODD)
def test_an_odd_value_is_taken_or_refused_by_its_key(of: tuple[str, str], value: Any) -> None:
    target, key = of
    cls = resolve_name(target)
    refusal = ""
    try:
        check_keys(OmegaConf.create({"_target_": target, key: value}), "part.")
        bases = [base for base in REQUIRED if isinstance(cls, type) and issubclass(cls, base)]
        if bases:
            required = dict(item for base in bases for item in REQUIRED[base].items())
            cls(**{**required, key: value})
    except ConfigError as error:
        refusal = str(error)
    assert not refusal or key in refusal


def test_an_annotation_for_type_checkers_alone_checks_nothing() -> None:
    def mine(of: "'Graph' | None", count: int) -> None: ...  # evaluated, it is a TypeError

    assert list(parameters_of(mine)) == ["of", "count"]
    check_keys(OmegaConf.create({"_target_": "builtins.dict", "a": 1}), "part.")


NUMBERS = [(of, key, kind) for of, key in KEYS if (kind := number_of(of, key)) is not None]


@given(st.data())
def test_numbers_of_a_range_are_taken_and_all_others_refused(data: st.DataObject) -> None:
    target, key, kind = data.draw(st.sampled_from(NUMBERS))
    inside = data.draw(st.from_type(kind).filter(lambda v: abs(v) < 2**63 and math.isfinite(v)))
    parameter = parameters_of(resolve_name(target))[key]
    assert check_argument(key, inside, parameter) == inside
    outside: list[Any] = [math.nan, math.inf, "x"]
    outside += [b.ge - 1 - abs(b.ge) for b in bounds(kind) if isinstance(b, Ge)]
    outside += [b.gt for b in bounds(kind) if isinstance(b, Gt)]
    # Twice as far, since a large number and one more may be one float.
    outside += [b.le + 1 + abs(b.le) for b in bounds(kind) if isinstance(b, Le)]
    with pytest.raises(ConfigError, match=f"^{key}="):
        check_argument(key, data.draw(st.sampled_from(outside)), parameter)


@pytest.mark.parametrize(
    ("made", "key"),
    [
        (lambda: Solver("rk4", num_steps=1, adjoint="no"), "solver.adjoint=no"),
        (lambda: GraphPDE(5, out_channels=3, flow=-1), "model.flow=-1"),
        (lambda: GraphPDE(5, out_channels=3, solver="x"), "model.solver=x"),
        (lambda: GCN(5, 1e30, out_channels=3), r"model.hidden_channels=1e\+30"),
        (lambda: GCN(5, 8, out_channels=3, layer_norm="no"), "model.layer_norm=no"),
        (lambda: FGSM(num_steps=2**31), "attacks.fgsm.num_steps=2147483648"),
        (lambda: TDGIA(variant="loose"), "attacks.tdgia.variant=loose"),
        (lambda: InjectionAdversary(loss="hinge"), "adversary.loss=hinge"),
        (lambda: InjectionAdversary(edges="gradient"), "adversary.edges=gradient"),
        (lambda: Fit(print, key="threat.fit", patience=0), "threat.fit.patience=0"),
    ],
)
def test_a_script_gets_the_same_error(made: Any, key: str) -> None:
    with without_type_checks(), pytest.raises(ConfigError, match=f"^{key}: "):
        made()


@pytest.mark.parametrize(
    ("check", "bounds", "inside", "outside"),
    [
        (check_value, {"kind": TwoOrMore}, [2, 10**9], [1, -5, 2.0, 2.5, True, "2", [2], 10**40]),
        (
            check_value,
            {"kind": float},
            [0, -1e300, np.float32(0.5)],
            [math.nan, math.inf, 10**400, "1", True, [1]],
        ),
        (check_choice, {"options": ["c", "b"]}, ["b"], ["d"]),
        (check_name, {}, ["cora", "my graph-2.1", "Köln", "a" * 100, "3"], ["", ".", "..", "../x"]),
        (check_name, {}, [], ["/x", "a/b", "a\\b", "-x", ".x", "a\nb", "{epoch}", "a" * 101, 3]),
    ],
)
def test_a_value_is_returned_or_refused_by_its_key(
    check: object, bounds: dict[str, object], inside: list[object], outside: list[object]
) -> None:
    assert callable(check)
    for value in inside:
        found = check("a.key", value, **bounds)
        assert found == value
        assert not isinstance(inside[-1], float) or isinstance(found, float)
    for value in outside:
        with pytest.raises(ConfigError, match=r"^a\.key="):
            check("a.key", value, **bounds)


class Growing(Protocol):
    def grow(self) -> None: ...


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (tuple[int, int], [1, 2], (1, 2)),  # as YAML has it
        (bool, np.float64(1) > 0, True),
        (Growing, 3, 3),
        ("Missing", 3, 3),
        (Callable[["Missing"], int], len, len),
        (Mapping[str, Callable[..., Any]], {"a": len}, {"a": len}),
    ],
)
def test_an_annotation_of_a_users_class_refuses_no_value_that_it_has(
    kind: Any, value: Any, expected: Any
) -> None:
    assert check_value("key", value, kind) == expected
