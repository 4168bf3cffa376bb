"""Custom stop signals: the field that the runtime gets, and the event if it has no effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.runtime_status import ContainerConfigError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.config.container_config import (
    stop_signal_of,
    why_stop_signal_ignored,
)
from tests.kit.records import container, make_pod
from tests.kit.runtime import FakeNode
from tests.kit.virtual_time import on_virtual_time


def signalled(name: str) -> Any:
    return container("app", lifecycle={"stopSignal": name})


@pytest.mark.parametrize(
    ("name", "enabled", "signal"),
    [
        ("SIGUSR1", True, cri.SIGNAL_SIGUSR1),
        ("SIGRTMIN", True, cri.SIGNAL_SIGRTMIN),
        ("SIGUSR1", False, cri.SIGNAL_RUNTIME_DEFAULT),
        ("", True, cri.SIGNAL_RUNTIME_DEFAULT),
    ],
)
def test_signal(name: str, enabled: bool, signal: int) -> None:
    assert stop_signal_of(signalled(name), enabled=enabled) == signal


@pytest.mark.parametrize("name", ["SIGNONE", "RUNTIME_DEFAULT", "SIGNAL_SIGTERM", "9", "sigterm"])
def test_no_such_signal(name: str) -> None:
    with pytest.raises(ContainerConfigError):
        stop_signal_of(signalled(name), enabled=True)


def test_the_reason_why_a_signal_is_ignored() -> None:
    spec, deaf = signalled("SIGUSR1"), cri.ContainerStatus()
    knows = cri.ContainerStatus(stop_signal=cri.SIGNAL_SIGUSR1)
    assert why_stop_signal_ignored(spec, knows, enabled=True) == ""
    assert why_stop_signal_ignored(spec, None, enabled=True) == ""
    # it may be sent nevertheless: CRI-O does, and its status does not show it
    assert why_stop_signal_ignored(spec, deaf, enabled=True) == (
        "lifecycle.stopSignal SIGUSR1 is not confirmed by the container runtime: "
        "one without support for stop signals sends the image's"
    )
    assert "ContainerStopSignals is off" in why_stop_signal_ignored(spec, None, enabled=False)
    silent: Any = container("app")
    assert why_stop_signal_ignored(silent, deaf, enabled=True) == ""


@pytest.mark.parametrize(("enabled", "reason"), [(True, "not confirmed"), (False, "is off")])
def test_a_start_reports_an_ignored_signal(tmp_path: Path, enabled: bool, reason: str) -> None:
    @on_virtual_time
    async def start() -> None:
        node = FakeNode(tmp_path)
        starter = node.manager.starter
        starter.settings = replace(starter.settings, stop_signals=enabled)
        await node.sync(make_pod(signalled("SIGUSR1")))
        (config,) = node.runtime.configs.values()
        assert config.stop_signal == (cri.SIGNAL_SIGUSR1 if enabled else cri.SIGNAL_RUNTIME_DEFAULT)
        notified = [event for event in node.events.seen if "StopSignalIgnored" in event]
        assert len(notified) == 1
        assert reason in notified[0]

    start()
