"""The mutations of a source text. Pure: text in, mutated texts out.

Four kinds, the faults that people make in rules:

- a comparison is flipped (``<`` becomes ``<=`` and ``>=``, ``==`` becomes ``!=``, ``in`` becomes
  ``not in``);
- a condition is dropped: an ``if`` never or always holds, an operand of ``and`` or ``or`` is left
  out, the two change places, a ``not`` goes;
- a number is off by one, ``True`` is ``False``;
- a sum is a difference, a product a quotient, ``min`` is ``max``.

Left alone: texts (what they say is not a decision), empty defaults (``spec.get("volumes") or ()``),
annotations, decorators, ``if TYPE_CHECKING``, the defaults of a protocol's methods (nobody calls
them), and what stands in an f-string, whose positions Python 3.11 does not know.
"""

from __future__ import annotations

import ast
import copy
import difflib
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

FLIPPED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}

SWAPPED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault in one module."""

    path: str
    """The module's file, from the root of the tree."""
    function: str
    """``Class.method`` it stands in; empty at the top of the module."""
    line: int
    start: int
    """Where in the text, in characters; up to ``end``."""
    end: int
    text: str
    """What stands there instead."""

    def apply(self, source: str) -> str:
        """The module's text with the fault in it."""
        return source[: self.start] + self.text + source[self.end :]

    def lines(self, source: str) -> tuple[str, str]:
        """The lines it changes, before and after, without the blanks between words: its name in the
        list of equivalents, which outlives what is done elsewhere in the file."""
        begin = source.rfind("\n", 0, self.start) + 1
        end = source.find("\n", self.end)
        before = source[begin : end if end >= 0 else None]
        after = (
            source[begin : self.start] + self.text + source[self.end : end if end >= 0 else None]
        )
        return " ".join(before.split()), " ".join(after.split())

    def diff(self, source: str) -> str:
        """As a unified diff with two lines of context."""
        mutated = self.apply(source)
        lines = difflib.unified_diff(
            source.splitlines(), mutated.splitlines(), self.path, self.path, n=2, lineterm=""
        )
        return "\n".join(lines)


def mutations(path: str, source: str) -> list[Mutation]:
    """All mutations of a module, in the order of its text. Raises SyntaxError."""
    places = _Places(source)
    found = []
    for function, node, replacement in _replacements(ast.parse(source), ""):
        start = places(node.lineno, node.col_offset)
        end = places(node.end_lineno or node.lineno, node.end_col_offset or 0)
        text = ast.unparse(replacement)
        if isinstance(replacement, ast.BoolOp | ast.Compare | ast.BinOp | ast.UnaryOp | ast.IfExp):
            text = f"({text})"
        found.append(Mutation(path, function, node.lineno, start, end, text))
    return sorted(set(found), key=lambda m: (m.start, m.end, m.text))


class _Places:
    """From ast's line and UTF-8 column to a place in the text."""

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines(keepends=True)
        self._begin = [0]
        for line in self._lines:
            self._begin.append(self._begin[-1] + len(line))

    def __call__(self, line: int, column: int) -> int:
        text = self._lines[line - 1].encode()[:column]
        return self._begin[line - 1] + len(text.decode())


def _replacements(node: ast.AST, function: str) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """Each expression that can be another, with the function it stands in."""
    if isinstance(node, ast.expr):
        for other in _others(node):
            yield function, node, other
    for test in _conditions(node):
        for value in (True, False):
            yield function, test, ast.Constant(value)
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}".lstrip(".")
    for child in _looked_at(node):
        yield from _replacements(child, function)


def _conditions(node: ast.AST) -> Iterable[ast.expr]:
    """The conditions on which this node decides."""
    match node:
        case ast.If(test=test) if _for_types(test):
            return []
        case ast.If(test=test) | ast.IfExp(test=test):
            return [test]
        case ast.comprehension(ifs=tests):
            return tests
        case ast.match_case(guard=ast.expr() as guard):
            return [guard]
    return []


def _looked_at(node: ast.AST) -> Iterator[ast.AST]:
    """What is below a node, without what is left alone."""
    match node:
        case ast.JoinedStr() | ast.Assert():
            return
        case ast.If(test=test, orelse=orelse) if _for_types(test):
            yield from orelse
        case ast.FunctionDef(body=[*_, ast.Expr(value=ast.Constant(value=types.EllipsisType()))]):
            return
        case ast.FunctionDef(args=args, body=body):
            yield from args.defaults
            yield from (default for default in args.kw_defaults if default is not None)
            yield from body
        case ast.ClassDef(body=body):
            yield from body
        case ast.AnnAssign(value=value):
            if value is not None:
                yield value
        case _:
            yield from ast.iter_child_nodes(node)


def _for_types(test: ast.expr) -> bool:
    return ast.unparse(test).endswith("TYPE_CHECKING")


def _others(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(ops=ops):
            for i, operator in enumerate(ops):
                for flipped in FLIPPED[type(operator)]:
                    other = copy.deepcopy(node)
                    other.ops[i] = flipped()
                    yield other
        case ast.BoolOp(op=operator, values=values) if not _is_empty(values[-1]):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
            for i in range(len(values)):
                rest = values[:i] + values[i + 1 :]
                yield ast.BoolOp(operator, rest) if len(rest) > 1 else rest[0]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
            yield (
                ast.UnaryOp(ast.USub(), ast.Constant(1)) if value == 0 else ast.Constant(value - 1)
            )
        case ast.BinOp(op=arithmetic) if type(arithmetic) in SWAPPED and not _of_texts(node):
            yield ast.BinOp(node.left, SWAPPED[type(arithmetic)](), node.right)
        case ast.Name(id="min" | "max" as name):
            yield ast.Name("max" if name == "min" else "min")


def _is_empty(node: ast.expr) -> bool:
    match node:
        case ast.Tuple(elts=[]) | ast.List(elts=[]) | ast.Dict(keys=[]):
            return True
        case ast.Constant(value=value):
            return not value
        case ast.Call(func=ast.Name(id="set" | "frozenset" | "dict"), args=[], keywords=[]):
            return True
    return False


def _of_texts(node: ast.BinOp) -> bool:
    """An operand shows that this joins texts, lists or paths: no sum."""
    for operand in (node.left, node.right):
        match operand:
            case ast.JoinedStr() | ast.List() | ast.Tuple() | ast.Constant(value=str() | bytes()):
                return True
            case ast.BinOp() if _of_texts(operand):
                return True
    return False
