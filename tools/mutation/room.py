"""The trials of one room: its tests are loaded once, and a forked process tries each mutation.

A mutation inside a function is a change of that function's code object, which every module that
imported the function sees. A trial then costs what the tests cost, which stop at the first that
fails. What cannot be changed so (constants, defaults, code that ran when the module was loaded),
and whatever survived, is tried from scratch by ``trial.passes``: nothing survives without that.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

import pytest

from tools.mutation import trial
from tools.mutation.mutations import Mutation


@dataclass
class Room:
    """A pytest plugin that runs a room's tests once as they are, then against each mutation."""

    mutations: Sequence[Mutation]
    sources: dict[str, str]
    tests: dict[str, list[str]]
    """Module's path -> the test files that it is tried against, in this order."""
    clean: bool = False
    """Without a mutation every test passes."""
    killed: list[bool] = field(default_factory=list)
    """For each mutation."""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of pytest's own loop."""
        if session.testsfailed or not session.items:
            return True
        begin = time.monotonic()
        self.clean = not _fails(session, session.items, lambda: None, trial.CPU_SECONDS)
        cpu_seconds = min(trial.CPU_SECONDS, 10 + 4 * int(time.monotonic() - begin))
        for mutation in self.mutations if self.clean else ():
            tests = self.tests[mutation.path]
            items = [item for item in session.items if _file(item) in tests]
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


def _fails(
    session: pytest.Session,
    items: list[pytest.Item],
    change: Callable[[], None],
    cpu_seconds: int,
) -> bool:
    """Whether a test fails after the change, or all of them take too long, in a forked process."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            trial.enclose(cpu_seconds)
            change()
            code = int(_one_fails(session, items))
            if code:
                session.config.pluginmanager.getplugin("terminalreporter").summary_failures()
                sys.stdout.flush()
        finally:
            os._exit(code)
    return trial.wait(pid, time.monotonic() + trial.SECONDS) != 0


def _one_fails(session: pytest.Session, items: list[pytest.Item]) -> bool:
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return True
    return False
