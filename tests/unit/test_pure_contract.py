"""The contract of pure modules: which modules declare it wrongly, and which should declare it."""

from __future__ import annotations

from pathlib import Path

import grimp
import pytest

from tools.pure_contract import PureContract, could_declare, declared, outside_faults, read_source


@pytest.mark.parametrize(
    ("docstring", "says_so"),
    [
        ("Pure.", True),
        ("What to do, and why. Pure.", True),
        ("What to do.\n\nPure: time is an argument.", True),
        ("What to do. Pure; never changes its\nargument.", True),
        ("Is it so? Pure (docs/reference/behaviour.md, a).", True),
        ("Whom it serves.\nThe rest. Pure.", True),
        ("Pure but for the lookups it is given.", False),
        ("Pure functions, mostly.", False),
        ("The pure half of it.", False),
        ("Impure.", False),
        ("What to do.", False),
    ],
)
def test_docstrings_that_declare_a_module_pure(docstring: str, says_so: bool) -> None:
    assert read_source(f'"""{docstring}"""\n').declares is says_so


def test_a_module_without_a_docstring_declares_nothing() -> None:
    assert not read_source("x = 'Pure.'\n").declares


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("import json", None),
        ("from urllib.parse import quote", None),
        ("import urllib.request", "imports urllib.request (l. 1)"),
        ("import jsonlike", "imports jsonlike (l. 1)"),
        ("from urllib import request", "imports urllib.request (l. 1)"),
        ("import os", "imports os (l. 1)"),
        ("import os.path as p", "imports os.path (l. 1)"),
        ("from os import fsdecode", None),
        ("from os import getenv", "imports os.getenv (l. 1)"),
        ("def f():\n    import time", "imports time (l. 2)"),
        ("if TYPE_CHECKING:\n    import os", None),
        ("if typing.TYPE_CHECKING:\n    import os\nelse:\n    import re", "imports re (l. 4)"),
        ("from kubeletpy.pods import pod", None),
        ("async def f(): ...", None),
        ("async def f():\n    return 1", "waits (l. 1)"),
        ("def f():\n    return open('x')", "calls open (l. 2)"),
        ("def f():\n    return datetime.now(UTC)", "calls datetime.now (l. 2)"),
        ("def f(clock):\n    return clock.now()", None),
        ("def f():\n    return uuid.uuid4()", "calls uuid.uuid4 (l. 2)"),
        ("def f():\n    return uuid.UUID(int=1)", None),
    ],
)
def test_imports_that_a_pure_module_may_not_have(text: str, fault: str | None) -> None:
    libraries = {"json", "urllib.parse", "os.fsdecode"}
    found = outside_faults(read_source(text), ["kubeletpy"], libraries)
    assert found == ([] if fault is None else [fault])


def test_a_package_speaks_for_its_modules() -> None:
    texts = {"k": "", "k.plan": '"""Pure."""', "k.plan.a": "", "k.plan.b.c": "", "k.planner": ""}
    pure = declared({module: read_source(text) for module, text in texts.items()})
    assert pure == {"k.plan", "k.plan.a", "k.plan.b.c"}


def test_modules_that_could_declare_themselves_pure() -> None:
    imported = {
        "decides": {"data", "words"},
        "words": set[str](),
        "left": {"right"},
        "right": {"left"},
        "acts": {"wire"},
        "plans": {"acts"},
        "data": {"wire"},
        "wire": set[str](),
    }
    clean = imported.keys() - {"wire", "data"}
    assert could_declare(clean, imported, {"data"}) == {"decides", "words", "left", "right"}


@pytest.mark.parametrize(
    ("modules", "broken"),
    [
        ({"plan": '"""Pure."""\nimport json\nfrom pkg import words', "words": '"""Pure."""'}, []),
        ({"act": "import asyncio"}, []),
        ({"plan": '"""Pure."""\nimport asyncio'}, [("pkg.plan", "imports asyncio (l. 2)")]),
        (
            {"plan": '"""Pure."""\nfrom pkg import act', "act": "import asyncio"},
            [("pkg.plan", "imports pkg.act, which does not declare that it is pure")],
        ),
        (
            {"plan": '"""What to do."""\ndef f(): ...'},
            [("pkg.plan", "is pure and should declare it in its docstring")],
        ),
        ({"facts": "import os", "plan": '"""Pure."""\nfrom pkg import facts'}, []),
    ],
)
def test_modules_on_disk(
    modules: dict[str, str],
    broken: list[tuple[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for name, text in modules.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    data = ["pkg.facts"] if "facts" in modules else []
    contract = PureContract(
        name="pure",
        session_options={"root_packages": ["pkg"]},
        contract_options={"libraries": ["json"], "data": data},
    )
    check = contract.check(grimp.build_graph("pkg", cache_dir=None), verbose=False)
    assert check.metadata["broken"] == broken
    assert check.kept is (not broken)
