"""Validation of arguments, from configurations and from Python, against their annotations.

    @validated("flow")
    class Heat(Flow):
        def __init__(self, channels: int, *, rate: Positive = 1.0) -> None: ...

`Heat(8, rate=-1)` and `flow.rate=-1` then raise the same `ConfigError`, which names key and range.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, wraps
from numbers import Number
from pathlib import Path
from pkgutil import resolve_name
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt

from robust_diffusion.errors import ConfigError

NAME = re.compile(r"\w[\w.+ -]{0,99}")
"""Valid names, in any alphabet."""

Natural = Annotated[int, Ge(0)]
Count = Annotated[int, Ge(1)]
Width = Annotated[int, Ge(1), Le(10**6)]
"""Width of a layer; a weight matrix of 10^6 x 10^6 does not fit in memory."""
Layers = Annotated[int, Ge(1), Le(1000)]
Steps = Annotated[int, Ge(0), Le(10**6)]
"""Iterations of a loop; more would take days."""
SomeSteps = Annotated[int, Ge(1), Le(10**6)]
Seed = Annotated[int, Ge(0), Le(2**32 - 1)]
Nodes = Annotated[int, Ge(0), Le(10**8)]
"""Number of nodes or edges that are held as a list."""
NonNegative = Annotated[float, Ge(0)]
Positive = Annotated[float, Gt(0)]
Share = Annotated[float, Ge(0), Le(1)]
PositiveShare = Annotated[float, Gt(0), Le(1)]
Probability = Annotated[float, Ge(0), Lt(1)]
"""Probability of dropping something, which must leave something."""
Backend = Literal["auto", "compiled", "torch", "triton"]
"""Backend of the sums over edges; see `operators.set_backend`."""

WORDS: Mapping[type, str] = {Ge: "at least", Gt: "above", Le: "at most", Lt: "below"}
"""Wording of each bound; a bound's attribute has the name of its class, in lower case."""

_NAMED: Mapping[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "text",
    Path: "a path",
    NoneType: "null",
    Callable: "callable",
}

STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def validated(key: str) -> Callable[[Decorated], Decorated]:
    """Decorate a class or function so that its arguments are checked against their annotations.

    Numbers, including numpy's, are converted to Python's. An argument is not checked if it has no
    annotation, or one that cannot be tested on a value.

    Args:
        key: Prefix of the argument names in messages. It may refer to an argument, as in
            `attacks.{self.name}`. If empty, as for functions that users call, only numbers and
            words are checked: such a function has its own messages for an invalid model or graph.
    """

    def decorate(target: Decorated) -> Decorated:
        if not isinstance(target, type):
            return cast(Decorated, _checking(target, key))
        if "__init__" in vars(target):  # an inherited one is checked already
            target.__init__ = _checking(target.__init__, key)  # type: ignore[misc]
        return target

    return decorate


def _checking(function: Callable[..., Any], key: str) -> Callable[..., Any]:
    @wraps(function)
    def check(*args: Any, **kwargs: Any) -> Any:
        parameters = parameters_of(check)
        try:
            bound = inspect.Signature(list(parameters.values())).bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # Python's own message is better
        arguments = bound.arguments
        bound.apply_defaults()
        prefix = key.format(**bound.arguments)
        bound.arguments = {
            name: check_argument(f"{prefix}.{name}".lstrip("."), value, parameters[name])
            if key or _is_plain(parameters[name].annotation)
            else value
            for name, value in arguments.items()
        }
        return function(*bound.args, **bound.kwargs)

    return check


@cache
def parameters_of(target: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a callable, with evaluated annotations if possible."""
    with suppress(Exception):  # annotations may name what only type checkers import
        return inspect.signature(target, eval_str=True).parameters
    try:
        return inspect.signature(target).parameters
    except ValueError:  # a builtin class without a signature
        return inspect.signature(lambda **_: None).parameters


def check_argument(key: str, value: object, parameter: inspect.Parameter) -> Any:
    """Return the value converted for the parameter; raise a `ConfigError` if it is invalid."""
    if value is parameter.default or parameter.kind in STARRED or _has_target(value):
        return value
    return check_value(key, value, parameter.annotation)


def check_value(key: str, value: object, kind: Any) -> Any:
    """Return the value converted to an annotation; raise a `ConfigError` if it is invalid."""
    from pydantic import PydanticUserError, ValidationError  # late, as in `_adapter`
    from pydantic_core import SchemaError

    if kind in (inspect.Parameter.empty, Any) or isinstance(kind, str):
        return value  # no annotation, or one for type checkers only
    plain = _plain(value)
    if isinstance(plain, int) and abs(plain) >= 2**63:
        raise ConfigError(f"{key}={value}: beyond 64 bits; use a smaller number")
    try:
        for form in [plain, tuple(plain)] if isinstance(plain, list) else [plain]:  # YAML has lists
            with suppress(ValidationError):
                return _adapter(kind).validate_python(form)
    except (PydanticUserError, SchemaError, NameError, TypeError):
        return value  # an annotation that cannot be checked, such as a protocol
    shown = "null" if value is None else value
    verb = "unknown; use" if get_origin(kind) is Literal else "must be"
    raise ConfigError(f"{key}={shown}: {verb} {_described(kind)}")


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter  # late, so that `--help` stays fast

    config = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
    return TypeAdapter(kind, config=config)


def _is_plain(kind: Any) -> bool:
    """Return whether a type consists of numbers and words, single, listed or as alternatives."""
    origin = get_origin(kind)
    if origin in (Union, UnionType, Sequence):
        return all(map(_is_plain, get_args(kind)))
    return origin in (Annotated, Literal) or kind in _NAMED


def _plain(value: Any) -> Any:
    """Convert numpy numbers and OmegaConf lists to Python's own."""
    # numpy's booleans are not registered as `Number`.
    if isinstance(value, Number) or type(value).__name__ in ("bool", "bool_"):
        return value.item() if hasattr(value, "item") else value
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return (tuple if isinstance(value, tuple) else list)(map(_plain, value))
    return value


def _has_target(value: object) -> bool:
    """Return whether a value is a configuration from which Hydra builds objects."""
    if isinstance(value, Mapping):
        return "_target_" in value or any(map(_has_target, value.values()))
    return isinstance(value, list) and any(map(_has_target, value))


def _described(kind: Any) -> str:
    origin, options = get_origin(kind), get_args(kind)
    if origin is Annotated:
        bounds = " and ".join(
            f"{WORDS[type(bound)]} {getattr(bound, type(bound).__name__.lower()):.12g}"
            for bound in options[1:]
            if type(bound) in WORDS
        )
        joined = " of " if bounds and options[0] is int else " "
        return f"{_described(options[0])}{joined}{bounds}".rstrip()
    if origin in (Union, UnionType):
        return " or ".join(_described(option) for option in options)
    if origin is Literal:
        words = {"true" if option is True else str(option) for option in options}  # as YAML has it
        return f"one of {', '.join(sorted(words))}"
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return f"a list, each {_described(options[0])}"
    kind = origin or kind
    return _NAMED.get(kind) or f"a {getattr(kind, '__name__', kind)}"


def check_choice(key: str, value: str, options: Iterable[str]) -> str:
    """Return the value if it is one of the options; raise a `ConfigError` that lists them."""
    if value not in (known := sorted(options)):
        raise ConfigError(f"{key}={value}: unknown; use one of {', '.join(known)}")
    return value


def named_path(key: str, value: str | Path) -> Path:
    """Return a path; raise a `ConfigError` if it is empty, which would be the current folder."""
    if value == "":
        raise ConfigError(f"{key}='': names no folder or file; give one, or leave it out")
    return Path(value)


def check_name(key: str, value: object, taken: Collection[str] = ()) -> str:
    """Return the value if it is a name that a file name may contain, and is not in `taken`.

    Raises:
        ConfigError: The value has characters other than letters, digits, `_`, `-`, `+`, `.` and
            inner spaces, begins with a dot, a sign or a space, is longer than 100 characters, or
            is taken.
    """
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise ConfigError(
            f"{key}={value}: is no name; begin with a letter or a digit, and use letters, digits, "
            "_ - + . and spaces, 100 at most"
        )
    if value in taken:
        raise ConfigError(f"{key}={value}: expected another name than {', '.join(sorted(taken))}")
    return value


def imported(target: str, path: str = "") -> Any:
    """Import the object that a `_target_` at a path names.

    Raises:
        ConfigError: The object cannot be imported.
    """
    try:
        obj = resolve_name(target)
    except Exception as error:  # importing a user-defined module may raise anything
        raise ConfigError(
            f"{path}_target_={target}: cannot be imported ({error}); check the name, and that "
            "Python finds its module"
        ) from error
    if not callable(obj):
        raise ConfigError(
            f"{path}_target_={target}: expected a class or function, got a {type(obj).__name__}; "
            "name one, as in module.Class"
        )
    return obj
