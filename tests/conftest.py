"""Settings for all tests."""

from __future__ import annotations

import inspect
import signal
from typing import Any

import pytest

from kubeletpy.podworkers.state_machine import WorkerMachine
from tests.kit.costs import set_aside
from tests.kit.virtual_time import on_virtual_time

WorkerMachine.validate = True

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell's background job ignores it, and so would the programs that tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Keep collections during tests short."""
    set_aside()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: Any) -> Any:
    """Run the coroutines of modules with the mark ``virtual_time`` on virtual time."""
    if not inspect.iscoroutinefunction(obj) or not name.startswith("test_"):
        return None
    if not isinstance(collector, pytest.Module) or not collector.get_closest_marker("virtual_time"):
        return None
    test = on_virtual_time(obj)
    setattr(collector.obj, name, test)
    return collector.ihook.pytest_pycollect_makeitem(collector=collector, name=name, obj=test)
