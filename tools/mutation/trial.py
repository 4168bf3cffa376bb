"""A process of its own for a trial, and the trial from scratch: the mutated module is loaded.

No file is changed: an importer of our own gives the mutated text for the module's name.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

import pytest

LIBRARIES = (
    "aiohttp.web",
    "google.protobuf.descriptor_pool",
    "grpc.aio",
    "hypothesis.stateful",
    "kubernetes.client.rest",
    "prometheus_client",
    "pytest_asyncio.plugin",
    "yaml",
)
"""Loaded once, before the first fork; none of them starts a thread when it is loaded."""

SECONDS = 240.0
"""No package's unit tests take as long; a mutation that waits forever is found out by this."""
CPU_SECONDS = 120
"""Of the processor; a mutation that loops is found out by this, however busy the machine is."""
BYTES = 2 << 30
"""Of memory for data; a mutation that grows without end is found out by this."""

PR_SET_PDEATHSIG = 1

ARGUMENTS = (
    "-q",
    "-x",
    "--tb=short",
    *("-p", "no:cacheprovider"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
    "--hypothesis-seed=0",
)


def module_of(path: str) -> str:
    """``kubeletpy/pods/qos.py``: ``kubeletpy.pods.qos``."""
    return ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")


class Mutated(importlib.abc.MetaPathFinder):
    """Finds one module of ours, with another text than its file's."""

    def __init__(self, path: Path, module: str, text: str) -> None:
        self._path, self._module, self._text = path, module, text

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """None for every other module."""
        if fullname != self._module:
            return None
        loader = _TextLoader(fullname, str(self._path), self._text)
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


class _TextLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, text: str) -> None:
        super().__init__(fullname, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text, self.path, "exec")


def preload() -> None:
    """Load what all trials need."""
    for library in LIBRARIES:
        importlib.import_module(library)


def passes(tests: Sequence[str], left_out: Sequence[str], finder: Mutated, log: Path) -> bool:
    """Whether all tests of these files, but those left out, pass with the mutated module."""
    pid = os.fork()
    if pid == 0:
        code = 3
        try:
            redirect(log)
            enclose()
            sys.meta_path.insert(0, finder)
            without = [f"--deselect={test}" for test in left_out]
            code = pytest.main([*ARGUMENTS, *without, *tests])
        finally:
            os._exit(code)
    return wait(pid, time.monotonic() + SECONDS) == 0


def redirect(log: Path) -> None:
    """What this process prints from here on goes to a file."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(out, number)


def enclose(cpu_seconds: int = CPU_SECONDS) -> None:
    """Make this process the head of a group, which ends with it or its parent. Bounds its time on
    the processor (in seconds) and its memory."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))


def wait(pid: int, deadline: float) -> int:
    """The child's exit code, -1 when it was too slow or died; all it started is killed.

    ``deadline`` is on the monotonic clock, in seconds.
    """
    child = os.pidfd_open(pid)
    try:
        in_time, _, _ = select.select([child], [], [], max(0.0, deadline - time.monotonic()))
    finally:
        os.close(child)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if not in_time:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) if in_time and os.WIFEXITED(status) else -1
