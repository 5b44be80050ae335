"""Values of configurations and of Python callers, checked against the annotations of arguments.

    @validated("flow")
    class Heat(Flow):
        def __init__(self, channels: int, *, rate: Positive = 1.0) -> None: ...

`Heat(8, rate=-1)` and `flow.rate=-1` then raise one `ConfigError`, which names key and range.
"""

import inspect
import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, wraps
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from annotated_types import Ge, Gt, Interval, Le, Lt

from robust_diffusion.errors import ConfigError

NAME = re.compile(r"\w[\w.+ -]{0,99}")
"""Text that names a thing, in whatever alphabet."""

Natural = Annotated[int, Ge(0)]
Count = Annotated[int, Ge(1)]
Width = Annotated[int, Ge(1), Le(10**6)]
"""Width of a layer; weights of 10^6 x 10^6 do not fit into any memory."""
Layers = Annotated[int, Ge(1), Le(1000)]
Steps = Annotated[int, Ge(0), Le(10**6)]
"""Rounds of a loop; more would not end within days."""
SomeSteps = Annotated[int, Ge(1), Le(10**6)]
Seed = Annotated[int, Ge(0), Le(2**32 - 1)]
Nodes = Annotated[int, Ge(0), Le(10**8)]
"""Or edges, of which a list is made."""
NonNegative = Annotated[float, Ge(0)]
Positive = Annotated[float, Gt(0)]
Share = Annotated[float, Ge(0), Le(1)]
PositiveShare = Annotated[float, Gt(0), Le(1)]
Probability = Annotated[float, Ge(0), Lt(1)]
"""Probability of dropping something, which must leave something."""
Backend = Literal["auto", "compiled", "torch", "reference"]
"""Backend of the sums over edges; see `operators.set_backend`."""

BOUNDS: Mapping[type, tuple[str, Callable[[Any, Any], bool]]] = {
    Ge: ("at least", operator.ge),
    Gt: ("above", operator.gt),
    Le: ("at most", operator.le),
    Lt: ("below", operator.lt),
}
"""Words of a bound, and the comparison that keeps it; its value has the name of the class."""

LARGEST: Mapping[Any, float] = {int: 2**63 - 1, float: sys.float_info.max}
"""Limit of a number's magnitude; neither infinity nor NaN is within."""

NAMED: Mapping[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "text",
    NoneType: "null",
    None: "null",
    Callable: "callable",
}

STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class _MisfitError(Exception):
    """A value is not of its annotation."""


def validated(key: str) -> Callable[[Decorated], Decorated]:
    """Decorator of a class or function that checks its arguments by their annotations.

    Numbers arrive as Python's own, those of numpy included. What has no annotation, or one that
    says nothing of a value, passes. The `*args` and `**options` of a constructor stand for the
    arguments of its base class.

    Args:
        key: Prefix of the arguments' names in messages, in which an argument may be named, as in
            `attacks.{self.name}`.
    """

    def decorate(of: Decorated) -> Decorated:
        if not isinstance(of, type):
            return cast(Decorated, _checking(of, key))
        if "__init__" in vars(of):  # an inherited one is checked already
            own, base = of.__init__, super(of, of).__init__  # type: ignore[arg-type, misc]
            of.__init__ = _checking(own, key)  # type: ignore[misc]
            if any(p.kind in STARRED for p in inspect.signature(own).parameters.values()):
                of.__init__.__signature__ = _merged(own, base)  # type: ignore[misc]
        return of

    return decorate


def _merged(own: Callable[..., Any], base: Callable[..., Any]) -> inspect.Signature:
    """Signature of a constructor, its `*args` and `**options` replaced by those of the base."""
    mine, theirs = (list(parameters_of(each).values()) for each in (own, base))
    passed = {p.kind for p in mine if p.kind in STARRED}
    mine = [p for p in mine if p.kind not in STARRED]
    positional = theirs[1:] if inspect.Parameter.VAR_POSITIONAL in passed else []
    by_name = theirs if inspect.Parameter.VAR_KEYWORD in passed else []
    named = {p.name for p in mine}
    inherited = [
        *(p for p in positional if p.kind is p.POSITIONAL_OR_KEYWORD),
        *(p for p in by_name if p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD)),
    ]
    merged = [*mine, *(p for p in inherited if p.name not in named)]
    return inspect.Signature(sorted(merged, key=lambda p: p.kind))


def _checking(function: Callable[..., Any], key: str) -> Callable[..., Any]:
    @wraps(function)
    def check(*args: Any, **kwargs: Any) -> Any:
        parameters = parameters_of(check)
        try:
            bound = inspect.Signature(list(parameters.values())).bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # whose own words are better
        given = bound.arguments
        bound.apply_defaults()
        prefix = key.format(**bound.arguments)
        bound.arguments = {
            name: check_argument(f"{prefix}.{name}", value, parameters[name])
            for name, value in given.items()
        }
        return function(*bound.args, **bound.kwargs)

    return check


@cache
def parameters_of(target: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Parameters of a callable, their annotations evaluated where that is possible."""
    try:
        return inspect.signature(target, eval_str=True).parameters
    except NameError:  # imported for type checkers alone
        return inspect.signature(target).parameters


def check_argument(key: str, value: object, parameter: inspect.Parameter) -> Any:
    """The value as the parameter takes it; else a `ConfigError` names key, value and range."""
    if value is parameter.default or parameter.kind in STARRED:
        return value
    return check_value(key, value, parameter.annotation)


def check_value(key: str, value: object, kind: Any) -> Any:
    """The value as an annotation has it; else a `ConfigError` names key, value and range."""
    try:
        return _fitting(value, kind)
    except _MisfitError:
        said = "null" if value is None else value
        raise ConfigError(f"{key}={said}: {_wanted(kind, value)}") from None


def _fitting(value: Any, kind: Any) -> Any:
    """The value, numbers as Python's own; a `_MisfitError` if it is not of that kind."""
    origin, options = get_origin(kind), get_args(kind)
    if isinstance(value, Mapping) and "_target_" in value:  # which Hydra makes an object of
        return value
    if origin is Annotated:
        value = _fitting(value, options[0])
        _require(all(_within(value, bound) for bound in _bounds(kind)))
    elif origin in (Union, UnionType):
        for option in options:
            with suppress(_MisfitError):
                return _fitting(value, option)
        raise _MisfitError
    elif origin is Literal:
        _require(any(type(value) is type(option) and value == option for option in options))
    elif kind is bool:
        _require(isinstance(value, bool))
    elif kind in (int, float):
        _require(isinstance(value, Integral if kind is int else Real))
        value = value.item() if hasattr(value, "item") else value  # of numpy
        _require(not isinstance(value, bool) and abs(value) <= LARGEST[kind])
        return kind(value)
    elif isinstance(origin, type) and issubclass(origin, Sequence):
        _require(isinstance(value, Sequence) and not isinstance(value, str))
        items = options if origin is tuple and options[-1] is not ... else options[:1] * len(value)
        _require(len(items) == len(value))
        found = [_fitting(each, item) for each, item in zip(value, items, strict=True)]
        return tuple(found) if origin is tuple or isinstance(value, tuple) else found
    elif kind is None or (isinstance(kind := origin or kind, type) and _is_testable(kind)):
        _require(isinstance(value, kind or NoneType))
    return value


def _require(condition: object) -> None:
    if not condition:
        raise _MisfitError


def _bounds(kind: Any) -> list[Any]:
    """The bounds of an `Annotated` number, each a `Ge`, `Gt`, `Le` or `Lt`."""
    declared = get_args(kind)[1:]
    several = [each for of in declared for each in (of if isinstance(of, Interval) else [of])]
    return [bound for bound in several if type(bound) in BOUNDS]


def _limit(bound: Any) -> Any:
    return getattr(bound, type(bound).__name__.lower())


def _within(value: Any, bound: Any) -> bool:
    return BOUNDS[type(bound)][1](value, _limit(bound))


def _is_testable(kind: type) -> bool:
    """False for an empty annotation, and a protocol or a tensor's shape, which is checked later."""
    protocol = getattr(kind, "_is_protocol", False) and not getattr(
        kind, "_is_runtime_protocol", False
    )
    return kind is not inspect.Parameter.empty and not protocol and kind.__module__ != "jaxtyping"


def _wanted(kind: Any, value: object) -> str:
    if get_origin(kind) is Literal:
        return f"unknown; use {_described(kind)}"
    if isinstance(value, int) and abs(value) > LARGEST[int]:
        return "beyond 64 bits; use a smaller number"
    return f"must be {_described(kind)}".rstrip()


def _described(kind: Any) -> str:
    origin, options = get_origin(kind), get_args(kind)
    if origin is Annotated:
        bounds = [f"{BOUNDS[type(b)][0]} {_limit(b):.12g}" for b in _bounds(kind)]
        of = ["of"] if options[0] is int else []
        return " ".join([_described(options[0]), *of, " and ".join(bounds)])
    if origin in (Union, UnionType):
        return " or ".join(_described(option) for option in options)
    if origin is Literal:
        words = {"true" if option is True else str(option) for option in options}  # as YAML has it
        return f"one of {', '.join(sorted(words))}"
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return f"a list, each {_described(options[0])}"
    kind = origin or kind
    return NAMED.get(kind) or f"a {getattr(kind, '__name__', kind)}"


def check_whole(key: str, value: object, *, at_least: int) -> int:
    """The value, if it is a whole number of at least that; else a `ConfigError` names the key."""
    return cast(int, check_value(key, value, Annotated[int, Ge(at_least)]))


def check_number(
    key: str,
    value: object,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> float:
    """The value as a float, if it is a finite number in range; else a `ConfigError`."""
    bounds = Interval(ge=at_least, gt=above, le=at_most, lt=below)
    return cast(float, check_value(key, value, Annotated[float, bounds]))


def check_choice(key: str, value: str, options: Iterable[str]) -> str:
    """The value, if it is one of the options; else a `ConfigError` that lists them."""
    return cast(str, check_value(key, value, Literal[tuple(options)]))


def check_name(key: str, value: object) -> str:
    """The value, if it is a name, that can be part of a file's name and no path; else an error.

    Raises:
        ConfigError: It is neither letters, digits, `_`, `-`, `+`, `.` nor spaces within, begins
            with a dot, a sign or a space, or is longer than 100 characters.
    """
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise ConfigError(
            f"{key}={value}: is no name; begin with a letter or a digit, and use letters, digits, "
            "_ - + . and spaces, 100 at most"
        )
    return value
