"""An import-linter contract: modules that declare themselves pure are pure.

A module declares itself pure with a sentence in its docstring that begins with "Pure" and a
punctuation mark: "Pure.", "Pure: time is an argument." A package that does so in its
``__init__.py`` declares it for every module in it. Such a module

- imports only what the contract names as ``libraries`` (data types and algorithms), modules of ours
  that declare themselves pure, and ``data`` modules (constants kept in a file or generated);
- has no ``async def`` but those that an interface declares, and awaits nothing;
- calls nothing that reads the clock, draws random numbers, opens, prints or reads (IMPURE_CALLS).
  It may use only those functions of ``datetime`` and ``uuid`` that compute.

Conversely, a module that satisfies all of this without declaring it breaks the contract, too: a
decision that is pure today stays pure. For type checking alone a pure module may import anything of
a library, but no impure module of ours. Used by the ``imports`` section of ``./test.sh``;
configured in ``pyproject.toml``.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

DECLARATION = re.compile(r"(?:^|[.:;?!] )Pure(?=[.:;,]| \()")
"""For a docstring whose words are separated by single blanks."""

IMPURE_CALLS = frozenset(
    {
        "breakpoint",
        "eval",
        "exec",
        "input",
        "open",
        "print",
        "__import__",
        "date.today",
        "datetime.date.today",
        "datetime.datetime.now",
        "datetime.datetime.today",
        "datetime.datetime.utcnow",
        "datetime.now",
        "datetime.today",
        "datetime.utcnow",
        "uuid.getnode",
        "uuid.uuid1",
        "uuid.uuid4",
        "getnode",
        "uuid1",
        "uuid4",
    }
)


@dataclass(frozen=True, slots=True)
class Source:
    """Facts from the source of one module."""

    declares: bool
    """It declares itself pure."""
    imports: Mapping[str, int]
    """Full name of each import, except those only for type checking -> line."""
    faults: tuple[str, ...]
    """Actions that a pure module must not do, with lines; imports aside."""
    decides: bool
    """It has a function or a class: a module without any need not declare itself."""


def read_source(text: str) -> Source:
    """Parse one module. Raises SyntaxError."""
    tree = ast.parse(text)
    docstring = ast.get_docstring(tree) or ""
    imports: dict[str, int] = {}
    faults: list[str] = []
    for node in _at_run_time(tree):
        match node:
            case ast.Import(names=names):
                imports.update({name.name: node.lineno for name in names})
            case ast.ImportFrom(module=str(module), names=names, level=0):
                imports.update({f"{module}.{name.name}": node.lineno for name in names})
            case ast.AsyncFunctionDef() if _is_declaration(node):
                pass
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                faults.append(f"waits (l. {node.lineno})")
            case ast.Call(func=called) if (name := ast.unparse(called)) in IMPURE_CALLS:
                faults.append(f"calls {name} (l. {node.lineno})")
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return Source(
        declares=DECLARATION.search(" ".join(docstring.split())) is not None,
        imports=imports,
        faults=tuple(faults),
        decides=any(isinstance(node, definitions) for node in tree.body),
    )


def _is_declaration(node: ast.AsyncFunctionDef) -> bool:
    """Whether a function has no body but its docstring and ``...``, as in an interface."""
    return all(
        isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) for each in node.body
    )


def _at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """Everything below a node except the bodies of ``if TYPE_CHECKING``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for other in child.orelse:
                yield other
                yield from _at_run_time(other)
        else:
            yield child
            yield from _at_run_time(child)


def declared(sources: Mapping[str, Source]) -> set[str]:
    """The modules that declare themselves pure, or whose package does."""
    return {
        module
        for module in sources
        if any(s is not None and s.declares for s in map(sources.get, _with_packages(module)))
    }


def _with_packages(module: str) -> Iterator[str]:
    parts = module.split(".")
    return (".".join(parts[: n + 1]) for n in range(len(parts)))


def outside_faults(source: Source, roots: Collection[str], libraries: Collection[str]) -> list[str]:
    """Actions and imports of a module that a pure module must not have."""
    strangers = (
        f"imports {name} (l. {line})"
        for name, line in source.imports.items()
        if not _below(name, roots) and not _below(name, libraries)
    )
    return [*source.faults, *strangers]


def _below(name: str, tops: Collection[str]) -> bool:
    return any(name == top or name.startswith(f"{top}.") for top in tops)


def could_declare(
    clean: Collection[str], imported: Mapping[str, Collection[str]], data: Collection[str]
) -> set[str]:
    """The largest set of modules without faults that import only each other and data."""
    left = set(clean) | set(data)
    while removed := {m for m in left if m not in data and not left.issuperset(imported[m])}:
        left -= removed
    return left - set(data)


class PureContract(Contract):
    """Contract that checks which modules are pure; see the docstring of this module.

    Configuration options:
        - libraries: what else pure modules may import, each with everything below it.
        - data: modules of ours that pure modules may import although they are not pure.
    """

    type_name = "pure"

    libraries = fields.SetField(subfield=fields.StringField())
    data = fields.SetField(subfield=fields.ModuleField(), required=False, default=set())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Compare what modules declare with what they do."""
        roots: list[str] = self.session_options["root_packages"]
        libraries: set[str] = set(self.libraries)  # type: ignore[call-overload]
        data = {module.name for module in self.data}  # type: ignore[attr-defined]
        modules = {m for m in graph.modules if _below(m, roots)}
        sources = {m: read_source(_path(m).read_text()) for m in modules}
        imported = {m: graph.find_modules_directly_imported_by(m) & modules for m in modules}
        faults = {m: outside_faults(sources[m], roots, libraries) for m in modules}
        pure = declared(sources)
        broken = [(m, fault) for m in sorted(pure) for fault in faults[m]]
        broken += [
            (m, f"imports {other}, which does not declare that it is pure")
            for m in sorted(pure)
            for other in sorted(imported[m] - pure - data)
        ]
        clean = {m for m in modules if not faults[m]}
        broken += [
            (module, "is pure and should declare it in its docstring")
            for module in sorted(could_declare(clean, imported, data) - pure)
            if sources[module].decides
        ]
        broken += [(m, "is named as data, but there is no such module") for m in data - modules]
        output.verbose_print(verbose, f"{len(pure)} of {len(modules)} modules are pure.")
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print a line for each fault."""
        output.print_error('A module declares that it is pure with "Pure." in its docstring.')
        output.new_line()
        for module, fault in check.metadata["broken"]:
            output.print_error(f"- {module} {fault}", bold=False)


def _path(module: str) -> Path:
    """The file of a module, found without importing it: only its root package is imported."""
    root, *below = module.split(".")
    found = importlib.util.find_spec(root)
    assert found is not None and found.origin is not None, root
    path = Path(found.origin).parent.joinpath(*below)
    # a package that became a module leaves a folder of bytecode in a checkout
    package = path / "__init__.py"
    return package if package.exists() else path.with_suffix(".py")
