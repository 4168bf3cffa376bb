"""The trials of one package: its tests are loaded once, and a forked process tries each mutation.

A mutation inside a function is a change of that function's code object, which every module that
imported the function sees. A trial then costs what the tests cost, which stop at the first that
fails. What cannot be changed so (constants, defaults, code that ran when the module was loaded),
and whatever survived, is tried from scratch by ``trial.passes``: nothing survives without that.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

import pytest

from tools.mutation import trial
from tools.mutation.mutations import Mutation

MEASURES = frozenset({"is_linear", "perf_counter", "process_time", "thread_time"})
"""Names that a test uses which measures time."""
RED = 3
"""Tests of a package that may fail without a mutation; with more, the result means nothing."""


@dataclass
class PackageTrials:
    """A pytest plugin that runs a package's tests once as they are, then against each mutation."""

    mutations: Sequence[Mutation]
    sources: dict[str, str]
    tests: dict[str, list[str]]
    """Module's path -> the test files that it is tried against, in this order."""
    clean: bool = False
    """Without a mutation the tests pass, all but a few."""
    red: list[str] = field(default_factory=list)
    """Tests that fail without a mutation: a busy machine may do that to one."""
    left_out: list[str] = field(default_factory=list)
    """Those, and tests that measure time, which a busy machine makes fail now and then."""
    killed: list[bool] = field(default_factory=list)
    """For each mutation."""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of pytest's own loop."""
        if session.testsfailed or not session.items:
            return True
        measuring = [item for item in session.items if _measures(item)]
        every = [item for item in session.items if item not in measuring]
        begin = time.monotonic()
        red = _red(session, every)
        cpu_seconds = min(trial.CPU_SECONDS, 10 + 4 * int(time.monotonic() - begin))
        self.clean = red is not None and len(red) <= RED
        every = [item for item in every if item not in (red or ())]
        self.red = [item.nodeid for item in red or ()]
        self.left_out = [*self.red, *(item.nodeid for item in measuring)]
        for mutation in self.mutations if self.clean else ():
            tests = self.tests[mutation.path]
            items = [item for item in every if _file(item) in tests]
            items.sort(key=lambda item: tests.index(_file(item)))
            change = self._change(mutation)
            killed = change is not None and _fails(session, items, change, cpu_seconds)
            self.killed.append(killed)
        return True

    def _change(self, mutation: Mutation) -> Callable[[], None] | None:
        """Gives the function its other code; None when the mutation is not inside a function."""
        found = _function(mutation)
        if found is None:
            return None
        text = mutation.apply(self.sources[mutation.path])
        code = _code(compile(text, found.__code__.co_filename, "exec"), found.__code__)
        if code is None or code == found.__code__:
            return None
        return lambda: setattr(found, "__code__", code)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _measures(item: pytest.Item) -> bool:
    function = getattr(item, "function", None)
    function = getattr(getattr(function, "hypothesis", None), "inner_test", function)
    code = getattr(function, "__code__", None)
    return code is not None and not MEASURES.isdisjoint(code.co_names)


def _function(mutation: Mutation) -> FunctionType | None:
    """The outermost function that the mutation is in."""
    found: Any = sys.modules.get(trial.module_of(mutation.path))
    if found is None:
        return None
    for name in mutation.function.split("."):
        found = vars(found).get(name)
        found = getattr(found, "fget", None) or getattr(found, "__func__", None) or found
        found = getattr(found, "__wrapped__", found)
        if isinstance(found, FunctionType):
            return found
        if not isinstance(found, type):
            return None
    return None


def _code(of: CodeType, like: CodeType) -> CodeType | None:
    """The code of the same function in another text of the module."""
    for constant in of.co_consts:
        if isinstance(constant, CodeType):
            same = (constant.co_qualname, constant.co_firstlineno, constant.co_freevars) == (
                like.co_qualname,
                like.co_firstlineno,
                like.co_freevars,
            )
            found = constant if same else _code(constant, like)
            if found is not None:
                return found
    return None


def _red(session: pytest.Session, items: list[pytest.Item]) -> list[pytest.Item] | None:
    """Tests that fail as the modules are; None when they do not come to an end."""
    reader, writer = os.pipe()

    def run() -> int:
        os.write(writer, json.dumps(list(_failing(session, items))).encode())
        return 0

    code = _forked(session, run, trial.CPU_SECONDS)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    return [items[index] for index in json.loads(text)] if code == 0 else None


def _fails(
    session: pytest.Session,
    items: list[pytest.Item],
    change: Callable[[], None],
    cpu_seconds: int,
) -> bool:
    """Whether a test fails after the change, or all of them take too long."""

    def run() -> int:
        change()
        return int(any(True for _ in _failing(session, items)))

    return _forked(session, run, cpu_seconds) != 0


def _forked(session: pytest.Session, run: Callable[[], int], cpu_seconds: int) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            trial.enclose(cpu_seconds)
            code = run()
            if session.testsfailed:
                session.config.pluginmanager.getplugin("terminalreporter").summary_failures()
                sys.stdout.flush()
        finally:
            os._exit(code)
    return trial.wait(pid, time.monotonic() + trial.SECONDS)


def _failing(session: pytest.Session, items: list[pytest.Item]) -> Iterator[int]:
    """Runs tests; where in the list those are that fail."""
    for index, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
        before = session.testsfailed
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed > before:
            yield index
