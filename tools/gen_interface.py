"""Write docs/interface.txt, the public interface with the signature of every name; and check it.

python tools/gen_interface.py              # writes the file
python tools/gen_interface.py --check      # exits 1 if the file is not what the code gives, or if a
                                           # change of a name has no line in CHANGELOG.md
python tools/gen_interface.py --changelog WORDS
                                           # the fragment of changes/ that has these words is about
                                           # all names that have changed

tools/interface-changes.csv has a row for each change of a name: the digest of its new signature and
an excerpt of the changelog entry about it. A name whose signature has another digest than its last
row has changed without a line.
"""

from __future__ import annotations

import argparse
import ast
import csv
import hashlib
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
for each in (ROOT / "up", ROOT):
    if str(each) not in sys.path:
        sys.path.insert(0, str(each))

OUT = ROOT / "docs" / "interface.txt"
LEDGER = ROOT / "tools" / "interface-changes.csv"
CHANGELOG = ROOT / "CHANGELOG.md"
FRAGMENTS = ROOT / "changes"
MODULES = ("kubeletpy.library", "kubeletpy_up.api")
"""The public modules; their names are in ``__all__``."""
OURS = ("kubeletpy", "kubeletpy_up")
REMOVED = "gone"
"""The digest of a name that is no longer public."""
HEADER = """\
The public interface of kubeletpy (docs/library.md): every name with its signature.
Made by tools/gen_interface.py; do not edit. A change needs a line in CHANGELOG.md.
"""


@dataclass(frozen=True, slots=True)
class Change:
    """Row of the ledger: the new signature of a name, and an excerpt of its changelog entry."""

    name: str
    digest: str
    excerpt: str


# -- signatures ----------------------------------------------------------------------------------


def interface() -> dict[str, str]:
    """Each public name, ``module.name``, with its signature: one line or more."""
    found = {}
    for module in map(importlib.import_module, MODULES):
        for name in sorted(module.__all__):
            found[f"{module.__name__}.{name}"] = "\n".join(_signature(name, getattr(module, name)))
    return found


def render(public: Mapping[str, str]) -> str:
    """The text of the file."""
    parts = (f"\n{name}\n" + _indented(text) for name, text in public.items())
    return HEADER + "".join(parts)


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def _signature(name: str, value: object) -> Iterator[str]:
    if isinstance(value, ModuleType):
        yield f"module {value.__name__}"
    elif inspect.isclass(value) and value.__module__.startswith(OURS):
        options = _definition(value.__module__, value.__name__)
        assert isinstance(options, ast.ClassDef)
        bases = [each.__name__ for each in value.__bases__]
        yield f"class({', '.join([*bases, *map(ast.unparse, options.keywords)])})"
        yield from _members(value)
    elif inspect.isfunction(value):
        yield from _lines(_definition(value.__module__, value.__name__), value.__name__)
    else:
        yield str(value)


def _members(kind: type) -> Iterator[str]:
    """Members of a class and its bases in this project, each from the first class of the MRO."""
    seen: set[str] = set()
    for each in kind.__mro__:
        if each.__module__.startswith(OURS):
            found = _definition(each.__module__, each.__name__)
            assert isinstance(found, ast.ClassDef)
            yield from _of_class(found, seen)


def _of_class(definition: ast.ClassDef, seen: set[str]) -> Iterator[str]:
    for dataclass_ in definition.decorator_list:
        if "dataclass" in ast.unparse(dataclass_):
            yield f"@{ast.unparse(dataclass_)}"
    own = set()
    for each in definition.body:
        for name in _names(each):
            if (name == "__init__" or not name.startswith("_")) and name not in seen:
                own.add(name)
                yield from _lines(each, name)
    seen |= own


def _names(statement: ast.stmt) -> Sequence[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return (name,)
        case ast.AnnAssign(target=ast.Name(id=name)):
            return (name,)
        case ast.Assign(targets=targets):
            return [each.id for each in targets if isinstance(each, ast.Name)]
    return ()


def _lines(statement: ast.stmt, name: str) -> Iterator[str]:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from (f"@{ast.unparse(each)}" for each in statement.decorator_list)
            word = "async def" if isinstance(statement, ast.AsyncFunctionDef) else "def"
            returns = f" -> {ast.unparse(statement.returns)}" if statement.returns else ""
            yield f"{word} {name}({ast.unparse(statement.args)}){returns}"
        case _:
            yield ast.unparse(statement)


@cache
def _module(name: str) -> ast.Module:
    path = inspect.getsourcefile(importlib.import_module(name))
    assert path is not None
    return ast.parse(Path(path).read_text())


def _definition(module: str, name: str) -> ast.stmt:
    return next(each for each in _module(module).body if getattr(each, "name", None) == name)


# -- the ledger ----------------------------------------------------------------------------------


def digest(text: str) -> str:
    """Digest of a signature."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def ledger(path: Path = LEDGER) -> list[Change]:
    """All changes, oldest first."""
    with path.open(newline="") as file:
        return [Change(**row) for row in csv.DictReader(file)]


def unrecorded(public: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str]:
    """The names whose signature differs from their last row, with their current digest."""
    last = {change.name: change.digest for change in changes}
    now = {name: digest(text) for name, text in public.items()}
    removed = {name: REMOVED for name in last if name not in now}
    return {name: of for name, of in (now | removed).items() if last.get(name, REMOVED) != of}


def entries(changelog: str) -> list[str]:
    """The bullets of a changelog, each on one line."""
    found = re.findall(r"^- (.*(?:\n  .*)*)", changelog, re.MULTILINE)
    return [" ".join(each.split()) for each in found]


def changelog_text(changelog: Path = CHANGELOG, fragments: Path = FRAGMENTS) -> str:
    """The changelog, preceded by the fragments that are not yet released."""
    paths = sorted(path for path in fragments.glob("*.md") if path.name != "README.md")
    texts = ("- " + path.read_text().strip().replace("\n", "\n  ") + "\n" for path in paths)
    return f"## [Unreleased]\n\n{''.join(texts)}\n{changelog.read_text()}"


def unreleased(changelog: str) -> str:
    """The section of what is not yet released; "" if there is none."""
    found = re.search(r"^## \[Unreleased\]$(.*?)(?=^## \[|\Z)", changelog, re.M | re.S)
    return found[1] if found else ""


def untold(changes: Sequence[Change], changelog: str) -> list[str]:
    """Faults of the rows: each must cite one line that names it, and no two of a name the same."""
    notified, wrong = entries(changelog), []
    cited: set[tuple[str, str]] = set()
    for change in changes:
        found = [entry for entry in notified if change.excerpt in entry]
        if len(found) != 1:
            lines = f"{len(found)} lines of CHANGELOG.md"
            wrong.append(f"{change.name}: {lines} have {change.excerpt!r}")
        elif not _is_named(change.name, found[0]):
            wrong.append(f"{change.name}: is not named by the line with {change.excerpt!r}")
        elif (change.name, found[0]) in cited:
            wrong.append(f"{change.name}: two changes cite one line ({change.excerpt!r})")
        else:
            cited.add((change.name, found[0]))
    return wrong


def _is_named(name: str, entry: str) -> bool:
    return f"`{name.rpartition('.')[2]}`" in entry


def problems(public: Mapping[str, str], changes: Sequence[Change], changelog: str) -> list[str]:
    """Faults of the ledger, as lines for a person."""
    changed = [
        f"{name}: {'was removed' if of == REMOVED else 'has changed'} "
        "without a line in CHANGELOG.md: "
        "add one to changes/ that names it in backticks, then run "
        "tools/gen_interface.py --changelog WORDS (words of that line)"
        for name, of in unrecorded(public, changes).items()
    ]
    return [*changed, *untold(changes, changelog)]


def record(public: Mapping[str, str], changes: Sequence[Change], text: str, excerpt: str) -> str:
    """Add what has changed to the ledger; what is wrong with that, or ""."""
    new = [Change(name, of, excerpt) for name, of in unrecorded(public, changes).items()]
    if not any(excerpt in entry for entry in entries(unreleased(text))):
        return f"no fragment in changes/ has {excerpt!r}"
    if wrong := untold([*changes, *new], text):
        return "\n".join(wrong)
    with LEDGER.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows((each.name, each.digest, each.excerpt) for each in new)
    return ""


def main() -> int:
    """Entry point; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--changelog", metavar="WORDS", default="")
    supplied = parser.parse_args()
    public, changelog = interface(), changelog_text()
    if supplied.check:
        wrong = problems(public, ledger(), changelog)
        if not OUT.exists() or OUT.read_text() != render(public):
            wrong.append("out of date: docs/interface.txt; run tools/gen_interface.py")
        print(*wrong, sep="\n", file=sys.stderr, end="\n" if wrong else "")
        return 1 if wrong else 0
    OUT.write_text(render(public))
    wrong_words = supplied.changelog and record(public, ledger(), changelog, supplied.changelog)
    if wrong_words:
        print(wrong_words, file=sys.stderr)
    return 1 if wrong_words else 0


if __name__ == "__main__":
    sys.exit(main())
