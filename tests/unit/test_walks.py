"""Files in pages and docstrings: the walks of docs/architecture.md can be followed, paths exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kubeletpy"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
HEADING = re.compile(r"^#### (.+?): (\d+) files$(.*?)(?=^#|\Z)", re.M | re.S)
ROW = re.compile(
    r"^\| `([\w/]+)` `(\w+)` \| (?:from `([\w/]+)`)? ?(?:through `([\w/]+)`)? ?\| \w.* \|$", re.M
)
DECISIONS = re.compile(r"^Decisions: (.*?)\n\n", re.M | re.S)


class Stop(NamedTuple):
    """A row of a walk.

    Attributes:
        module: its file, below kubeletpy/ and without suffix.
        function: the one that the call enters.
        caller: the file that calls it, if not that of the row above.
        through: the file that passes the object or function that is called, if it is not imported.
    """

    module: str
    function: str
    caller: str
    through: str


class Walk(NamedTuple):
    """A table: the number of its files by its heading, its rows, the modules that decide."""

    files: int
    stops: list[Stop]
    decisions: list[str]


def _walks() -> dict[str, Walk]:
    section = PAGE.partition("### Walks, file by file")[2].partition("\n### ")[0] + "\n"
    return {
        title: Walk(
            int(files),
            [Stop(*row) for row in ROW.findall(table)],
            re.findall(r"`([\w/]+)`", "".join(DECISIONS.findall(table))),
        )
        for title, files, table in HEADING.findall(section)
    }


WALKS = _walks()


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse((PACKAGE / f"{module}.py").read_text())


@cache
def _imports(module: str) -> frozenset[str]:
    """The modules that a module imports, or loads by their names; those of ours as paths."""
    found = set()
    for node in ast.walk(_tree(module)):
        match node:
            case ast.ImportFrom(module=str(name), names=names):
                found |= {name, *(f"{name}.{each.name}" for each in names)}
            case ast.Constant(value=str(text)) if text.startswith("kubeletpy."):
                found.add(text)
    return frozenset(name.removeprefix("kubeletpy.").replace(".", "/") for name in found)


@cache
def _root_imports() -> frozenset[str]:
    """The modules that the composition root imports, and those that these import."""
    root = (path.relative_to(PACKAGE) for path in (PACKAGE / "agent").rglob("*.py"))
    direct = frozenset[str]().union(*(_imports(str(path.with_suffix(""))) for path in root))
    ours = (each for each in direct if (PACKAGE / f"{each}.py").exists())
    return direct.union(*map(_imports, ours))


@cache
def _uses(module: str) -> frozenset[str]:
    """The names that a module calls or passes on."""
    found = set()
    for node in ast.walk(_tree(module)):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name):
                found.add(name)
    return frozenset(found)


@cache
def _defines(module: str) -> frozenset[str]:
    """The functions and methods of a module, and what its classes declare in a line."""
    found = set()
    for node in ast.walk(_tree(module)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return frozenset(found)


def test_the_page_has_six_walks() -> None:
    assert len(WALKS) == 6


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_has_the_number_of_files_in_its_heading(title: str) -> None:
    modules = [stop.module for stop in WALKS[title].stops]
    assert len(set(modules)) == len(modules) == WALKS[title].files


@pytest.mark.parametrize("title", WALKS)
def test_each_file_of_a_walk_reaches_the_next_one(title: str) -> None:
    stops = WALKS[title].stops
    assert stops[0].function in _defines(stops[0].module)
    before = {stop.module for stop in stops[:1]}
    for above, stop in pairwise(stops):
        caller = stop.caller or above.module
        assert caller in before, f"{stop.module} is called from a file that comes before it"
        assert _reaches(caller, stop, before), f"{caller} does not reach {stop.module}"
        before.add(stop.module)


def _reaches(caller: str, stop: Stop, before: set[str]) -> bool:
    module, function, _, through = stop
    if function not in _defines(module):
        return False
    if not through:
        return module in _imports(caller) and function in _uses(caller)
    if through == module:  # it has passed a function of its own to the caller
        return caller in _imports(module) and function in _uses(module)
    if through.startswith("agent/"):  # the composition root has passed a function
        return function in _uses(through)
    # an interface, of which the composition root has passed an object to a file of the walk
    seen = {caller}.union(*map(_imports, before))
    is_interface = through in seen and function in _defines(through)
    return is_interface and function in _uses(caller) and module in _root_imports()


@pytest.mark.parametrize(
    ("caller", "stop"),
    [
        ("syncloop/loop", Stop("podworkers/workers", "no_such_function", "", "")),
        ("syncloop/loop", Stop("podworkers/syncer", "run", "", "")),
        ("podworkers/workers", Stop("podworkers/state_machine", "refresh", "", "")),
        ("kubeapi/client", Stop("kubeapi/reflector", "run", "", "kubeapi/reflector")),
        ("syncloop/loop", Stop("kubeapi/client", "answer", "", "kubeapi/protocol")),
        ("syncloop/event_stream", Stop("syncloop/loop", "runtime_changed", "", "agent/node")),
    ],
)
def test_a_wrong_row_is_noticed(caller: str, stop: Stop) -> None:
    assert not _reaches(caller, stop, {caller})


@pytest.mark.parametrize("title", WALKS)
def test_a_module_that_decides_is_imported_by_a_file_of_the_walk(title: str) -> None:
    walk = WALKS[title]
    assert walk.decisions
    seen = [*(stop.module for stop in walk.stops), *walk.decisions]
    imported = frozenset().union(*map(_imports, seen))
    assert [module for module in walk.decisions if module not in imported] == []


# -- paths ----------------------------------------------------------------------------------------

TOPS = ("bench", "deploy", "docs", "examples", "kubeletpy", "tests", "tools", "up")
FILES = [
    str(path.relative_to(ROOT))
    for top in TOPS
    for path in [ROOT / top, *(ROOT / top).rglob("*")]
    if "__pycache__" not in path.parts and "egg-info" not in str(path)
]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGE_ROW = re.compile(r"^\| `(\w+)` \| (.*) \|$", re.M)


def _names_a_file(text: str) -> bool:
    """Whether text in backticks is a path of this repository, or the name of a Python file."""
    if re.search(r"[^\w./-]", text):  # a command, a pattern, a URL
        return False
    return text.startswith(tuple(f"{top}/" for top in TOPS)) or text.endswith(".py")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    named = {each for each in re.findall(r"`([^`\n]+)`", text) if _names_a_file(each)}
    assert {name for name in named if not _files(name)} == set()


def _files(name: str) -> list[Path]:
    """The files and folders that a path can mean: those that end with it."""
    return [ROOT / file for file in FILES if f"/{file}".endswith(f"/{name.strip('/')}")]


RECIPES = (ROOT / "docs" / "contributing.md").read_text().partition("\n## Recipes\n")[2]


@pytest.mark.parametrize(
    "recipe", RECIPES.split("\n### ")[1:], ids=lambda text: text.split("\n")[0]
)
def test_the_names_in_a_recipe_are_in_the_files_that_it_names(recipe: str) -> None:
    quoted = re.findall(r"`([^`\n]+)`", recipe)
    files = [path for name in quoted if "/" in name or ".py" in name for path in _files(name)]
    assert files
    texts = "\n".join(path.read_text() for path in files if path.is_file())
    code = [each for each in quoted if re.fullmatch(r"\w[\w.]*(\(.*\))?|\w+ = .*", each)]
    terms = [each for each in code if Path(each).suffix not in (".py", ".csv", ".md")]
    names = {name for each in terms for name in re.findall(r"[A-Za-z_]\w+", each)}
    assert {name for name in names if not re.search(rf"\b{name}\b", texts)} == set()


def test_the_table_of_packages_names_modules_of_these_packages() -> None:
    table = PAGE.partition("| package | task and parts |")[2].partition("\n\n")[0]
    rows = PACKAGE_ROW.findall(table)
    assert len(rows) == 20
    named = [
        PACKAGE / package / path
        for package, row in rows
        for path in re.findall(r"`([a-z0-9_]+(?:/[a-z0-9_]*)*)`", row)
    ]
    assert [each for each in named if not (each.is_dir() or each.with_suffix(".py").exists())] == []


# -- references in docstrings ---------------------------------------------------------------------

REFERENCE = re.compile(r":(?:mod|class|func|meth|data|attr):`~?(\.?\w+(?:\.\w+)+|\.\w+)`")


def _resolves(path: Path, name: str) -> bool:
    """Whether a module has the name; ``.x.Y`` is in the package of the file."""
    parts = name.lstrip(".").split(".")
    root = path.parent if name.startswith(".") else ROOT / ("up" * (parts[0] == "kubeletpy_up"))
    for place in range(len(parts), 0, -1):
        module = root.joinpath(*parts[:place])
        source = module.with_suffix(".py")
        if source.exists() or (source := module / "__init__.py").exists():
            rest = parts[place:]
            return not rest or re.search(rf"\b{rest[-1]}\b", source.read_text()) is not None
    return False


@pytest.mark.parametrize("top", ["kubeletpy", "up", "tests", "tools", "bench"])
def test_references_to_modules_and_their_names_resolve(top: str) -> None:
    broken = []
    for path in (ROOT / top).rglob("*.py"):
        for name in REFERENCE.findall(path.read_text()):
            ours = name.startswith((".", "kubeletpy.", "kubeletpy_up."))
            if ours and not _resolves(path, name):
                broken.append(f"{path.relative_to(ROOT)}: {name}")
    assert broken == []
