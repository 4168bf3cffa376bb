"""Which modules are mutated: those of the agent that declare themselves pure (see
``tools/pure_contract.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools.pure_contract import declared, read_source

PACKAGE = "kubeletpy"
LEFT_OUT = ("kubeletpy/api/types.py", "kubeletpy/api/pod_fields.py", "kubeletpy/remote/generated/")
"""Generated types."""


def pure_modules(tree: Path) -> list[str]:
    """Their files, from the tree's root."""
    sources = {}
    files = {}
    for file in sorted((tree / PACKAGE).rglob("*.py")):
        path = file.relative_to(tree)
        module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        files[module] = path.as_posix()
        sources[module] = read_source(file.read_text())
    found = (files[module] for module in declared(sources))
    return sorted(path for path in found if not path.startswith(LEFT_OUT))


def package_of(path: str) -> str:
    """``kubeletpy/pods/qos.py``: ``pods``; ``kubeletpy/upkeep.py``: ``upkeep``."""
    return Path(path).parts[1].removesuffix(".py")


def tests_of(package: str, tree: Path) -> list[str]:
    """The unit tests of a package (a folder, or else a file), of all packages for an empty name."""
    unit = tree / "tests" / "unit"
    files = (
        sorted((unit / package).rglob("test_*.py"))
        if (unit / package).is_dir()
        else [unit / f"test_{package}.py"]
    )
    return [file.relative_to(tree).as_posix() for file in files]


def tests_for(path: str, tree: Path, sources: Mapping[str, str]) -> list[str]:
    """All tests of a module's package, those first that are likely to notice a fault in it.

    Those are the tests that import it; then the ones that import a pure module that imports it, and
    so on. When the package has neither, the unit tests elsewhere that import it come first.
    """
    reached = {path}
    while True:
        more = {p for p, text in sources.items() if p not in reached and _imports(text, reached)}
        if not more:
            break
        reached |= more
    tests = tests_of(package_of(path), tree)
    texts = {test: (tree / test).read_text() for test in tests}
    if any(_imports(text, reached) for text in texts.values()):
        return sorted(
            tests, key=lambda t: (not _imports(texts[t], {path}), not _imports(texts[t], reached))
        )
    everywhere = tests_of("", tree)
    elsewhere = [t for t in everywhere if _imports((tree / t).read_text(), {path})]
    return [*elsewhere, *tests]


@functools.cache
def _imported(text: str) -> frozenset[str]:
    return frozenset(read_source(text).imports)


def _imports(text: str, paths: Iterable[str]) -> bool:
    """Names are ``package.module`` or ``package.module.name``."""
    names = _imported(text)
    modules = {name.rpartition(".")[0] for name in names} | names
    return any(".".join(Path(path).with_suffix("").parts) in modules for path in paths)
