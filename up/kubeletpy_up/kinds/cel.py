"""Which devices a CEL expression of resource.k8s.io selects. Pure.

The CEL library is loaded with the first expression. An expression is invalid if it uses anything
that the library lacks (optional values, ``format``, an API server's other extensions). ``cel.bind``
is rewritten as ``[value].map(name, body)[0]``. Expressions are bounded by their length, their depth
and the nesting of their loops: costs are not counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from kubeletpy_up.schema import formats

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON

MAX_LOOPS = 2
"""Maximum nesting of loops: each runs over at most 32 entries, or over a list in the expression."""
_LOOPS = frozenset({"all", "exists", "exists_one", "filter", "map"})
# fmt: off
_KNOWN = _LOOPS | {
    "has", "size", "type", "dyn", "bool", "bytes", "double", "int", "uint", "string", "matches",
    "contains", "startsWith", "endsWith", "quantity", "isQuantity", "semver", "isSemver",
    "compareTo", "isGreaterThan", "isLessThan", "sign", "asInteger", "isInteger", "major",
    "minor", "patch", "lowerAscii", "upperAscii",
}
# fmt: on
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?",
    re.ASCII,
)
_CACHED = 256


class BadExpression(ValueError):
    """An expression can't be compiled, or not evaluated for a device; the message has details."""


def problem(expression: str) -> str:
    """Why an expression cannot be compiled; empty if it can."""
    try:
        _program(expression)
    except BadExpression as error:
        return f"compilation failed: {error}"
    return ""


def selects(expression: str, device: Mapping[str, Any]) -> bool:
    """Whether an expression is true for a device (see :func:`device_value`).

    Raises:
        BadExpression: it cannot be evaluated, or is neither true nor false.
    """
    program = _program(expression)
    try:
        found = program.evaluate({"device": device})
    except RecursionError:
        raise BadExpression("it is nested too deeply") from None
    except Exception as error:  # noqa: BLE001 - it raises what its operators raise
        raise BadExpression(f"CEL runtime error: {_parts(error)}") from None
    if type(found).__name__ not in ("BoolType", "bool"):
        raise BadExpression("it must evaluate to bool")
    return bool(found)


def device_value(driver: str, device: JSON) -> Any:
    """A ResourceSlice's device as expressions see it: the variable ``device``."""
    types = _library().celtypes

    def by_domain(supplied: JSON | None, read: Callable[[JSON], Any]) -> Any:
        found: dict[str, dict[str, Any]] = {}
        for name, value in (supplied or {}).items():
            domain, _, plain = name.rpartition("/")
            found.setdefault(domain or driver, {})[plain] = read(value)
        return _domains()({types.StringType(k): _mapping(v) for k, v in found.items()})

    return _mapping(
        {
            "driver": types.StringType(driver),
            "attributes": by_domain(device.get("attributes"), _attribute),
            "capacity": by_domain(device.get("capacity"), lambda each: Quantity(each["value"])),
            "allowMultipleAllocations": types.BoolType(
                bool(device.get("allowMultipleAllocations"))
            ),
        }
    )


class _Ordered:
    """A value that CEL compares by calls."""

    __slots__ = ("key",)
    key: Any

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class Quantity(_Ordered):
    """An amount. Raises ValueError."""

    def __init__(self, text: object) -> None:
        self.key: Decimal = formats.read(str(text))[0]


class Semver(_Ordered):
    """A version. Raises ValueError."""

    def __init__(self, text: object) -> None:
        found = _SEMVER.fullmatch(str(text))
        if found is None:
            raise ValueError(f"{str(text)!r} is no semantic version")
        self.key = (*(int(found[each]) for each in (1, 2, 3)), _before_release(found[4]))


def _before_release(text: str | None) -> tuple[Any, ...]:
    """The order of a pre-release: before its release, and numbers before words."""
    if text is None:
        return ((2,),)
    parts = text.split(".")
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)


@cache
def _library() -> Any:
    import celpy  # costs 0.1 s and 15 MB: only if there are such expressions

    return celpy


@cache
def _domains() -> type[Any]:
    """A mapping in which an absent domain is empty, as in Kubernetes."""
    types = _library().celtypes

    class Domains(types.MapType):  # type: ignore[misc, name-defined]  # loaded late
        def __getitem__(self, key: Any) -> Any:
            return super().__getitem__(key) if key in self else types.MapType()

    return Domains


def _mapping(supplied: Mapping[str, Any]) -> Any:
    types = _library().celtypes
    return types.MapType({types.StringType(key): value for key, value in supplied.items()})


def _attribute(value: JSON) -> Any:
    types = _library().celtypes
    kinds: dict[str, Callable[[Any], Any]] = {
        "bool": types.BoolType,
        "int": types.IntType,
        "string": types.StringType,
        "version": Semver,
    }
    for kind, read in kinds.items():
        if kind in value:
            return read(value[kind])
        if f"{kind}s" in value:
            return types.ListType([read(each) for each in value[f"{kind}s"]])
    return None


@lru_cache(_CACHED)
def _program(expression: str) -> Any:
    """Compile. Raises BadExpression."""
    celpy = _library()
    environment = celpy.Environment()
    try:
        tree = _with_bindings(environment, environment.compile(expression))
        _check(tree, 0)
        return environment.program(tree, functions=_functions())
    except celpy.CELParseError as error:
        where = f" at {error.line}:{error.column}" if error.line else ""
        raise BadExpression(f"syntax error{where}") from None
    except RecursionError:
        raise BadExpression("it is nested too deeply") from None


def _check(tree: Any, loops: int) -> None:
    """Refuse unknown names and functions, and loops nested too deeply."""
    if tree.data in ("ident_arg", "member_dot_arg", "dot_ident_arg"):
        name = str(tree.children[0 if tree.data != "member_dot_arg" else 1])
        if name not in _KNOWN:
            raise BadExpression(f"undeclared reference to '{name}'")
        if tree.data == "member_dot_arg" and name in _LOOPS:
            loops += 1
            if loops > MAX_LOOPS:
                raise BadExpression(f"more than {MAX_LOOPS} loops within each other")
    for child in tree.children:
        if hasattr(child, "children"):
            _check(child, loops)


def _with_bindings(environment: Any, tree: Any) -> Any:
    """The tree with ``[value].map(name, body)[0]`` for each ``cel.bind(name, value, body)``."""
    tree.children = [
        _with_bindings(environment, child) if hasattr(child, "children") else child
        for child in tree.children
    ]
    if not _is_binding(tree):
        return tree
    name, value, body = tree.children[2].children
    found = environment.compile("[0].map(x, x)[0]")
    indexed = next(found.find_data("member_index"))
    call = next(found.find_data("member_dot_arg"))
    listed = next(call.children[0].find_data("exprlist"))
    listed.children, call.children[2].children = [value], [name, body]
    return indexed


def _is_binding(tree: Any) -> bool:
    if tree.data != "member_dot_arg" or str(tree.children[1]) != "bind":
        return False
    owner = [str(token) for token in tree.children[0].scan_values(lambda _: True)]
    arguments = tree.children[2].children if len(tree.children) > 2 else ()
    if owner != ["cel"] or len(arguments) != 3:
        raise BadExpression("undeclared reference to 'bind'")
    return True


@cache
def _functions() -> dict[str, Callable[..., Any]]:
    types = _library().celtypes

    def can(read: Callable[[object], object]) -> Callable[[object], Any]:
        def check(text: object) -> Any:
            try:
                read(text)
            except ValueError:
                return types.BoolType(False)
            return types.BoolType(True)

        return check

    def compare(one: _Ordered, other: _Ordered) -> int:
        if type(one) is not type(other):
            raise TypeError("no such overload: they are not of one type")
        return int(one.key > other.key) - int(one.key < other.key)

    return {
        "quantity": Quantity,
        "isQuantity": can(Quantity),
        "semver": Semver,
        "isSemver": can(Semver),
        "compareTo": lambda one, other: types.IntType(compare(one, other)),
        "isGreaterThan": lambda one, other: types.BoolType(compare(one, other) > 0),
        "isLessThan": lambda one, other: types.BoolType(compare(one, other) < 0),
        "sign": lambda one: types.IntType((one.key > 0) - (one.key < 0)),
        "isInteger": lambda one: types.BoolType(one.key == int(one.key)),
        "asInteger": lambda one: types.IntType(int(one.key)),
        "major": lambda one: types.IntType(one.key[0]),
        "minor": lambda one: types.IntType(one.key[1]),
        "patch": lambda one: types.IntType(one.key[2]),
        "lowerAscii": lambda one: types.StringType(str(one).lower()),
        "upperAscii": lambda one: types.StringType(str(one).upper()),
    }


def _parts(error: Exception) -> str:
    """The first part of a library error's message; the rest is about its internals."""
    text = str(error.args[0] if error.args else error)
    if text.startswith("no such member in mapping: "):
        return f"no such key: {text.rpartition(': ')[2].strip(chr(39))}"
    if text.startswith("found no matching overload"):
        return "no such overload: the types of two values do not go together"
    return text.partition(" (in activation")[0][:200]
