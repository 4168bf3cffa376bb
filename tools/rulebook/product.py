"""Words and numbers in the agent's own sources, read without importing them."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from tools.rulebook import tables

PACKAGE = tables.ROOT / "kubeletpy"
NOT_THE_AGENT = ("generated",)
PROSE = re.compile(r'"""(?s:.*?)"""|^\s*#.*$', re.M)
OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.LShift: lambda a, b: int(a) << int(b),
}


def modules() -> Iterator[Path]:
    """The agent's modules, but the generated ones."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if not set(NOT_THE_AGENT) & set(path.relative_to(PACKAGE).parts):
            yield path


@cache
def code() -> str:
    """The text of all sources without docstrings and without lines of comment."""
    return "\n".join(PROSE.sub("", path.read_text()) for path in modules())


def has_string(text: str) -> bool:
    """Whether a string of the sources is this text, or an f-string begins with it up to ``{``."""
    return f'"{text}"' in code() or (text.endswith("{") and f'f"{text}' in code())


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    raise ValueError(f"not a number: {ast.unparse(node)}")


@cache
def _assigned(room: str, module: str) -> tuple[tuple[str, ast.expr], ...]:
    """Assignments at the top of a package's modules of that name."""
    return tuple(
        (ast.unparse(node.targets[0]), node.value)
        for path in (PACKAGE / room).rglob(f"{module}.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign)
    )


def number(place: str) -> float:
    """The number that a module gives a name.

    Args:
        place: ``PACKAGE/module NAME``; the module may lie in any subpackage.

    Raises:
        LookupError: there is no such module or name, or more than one.
    """
    where, name = place.split()
    room, _, module = where.rpartition("/")
    found = [_value(value) for target, value in _assigned(room, module) if target == name]
    if len(found) != 1:
        raise LookupError(f"{place}: {len(found)} found")
    return found[0]
