"""The signal that stops a container: the spec's where the gate is on, else the image's.

The runtime sends it, so it must support ContainerConfig.stop_signal (KEP-4960). A runtime that does
not silently sends the image's signal instead: this module then reports that. A runtime that does
shows the signal in the status of the container. One that sends the signal and does not show it
there (CRI-O 1.37) cannot be distinguished from one that ignores it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from kubeletpy.base.api import types as api
from kubeletpy.pods.runtime_status import ContainerConfigError
from kubeletpy.remote.generated import api_pb2 as cri

_PREFIX = "SIGNAL_"
"""The CRI puts it before each name; pods have SIGTERM."""
_SIGNALS = cast(
    Mapping[str, cri.Signal],
    {name.removeprefix(_PREFIX): number for name, number in cri.Signal.items()},
)


def stop_signal_of(container: api.Container, *, enabled: bool) -> cri.Signal:
    """The signal to pass to the runtime. ``enabled``: the gate ContainerStopSignals.

    Raises:
        ContainerConfigError: there is no such signal.
    """
    name = (container.get("lifecycle") or {}).get("stopSignal")
    if not enabled or not name:
        return cri.SIGNAL_RUNTIME_DEFAULT
    signal = _SIGNALS.get(name, cri.SIGNAL_RUNTIME_DEFAULT)
    if signal == cri.SIGNAL_RUNTIME_DEFAULT:
        raise ContainerConfigError(f"lifecycle.stopSignal: no such signal: {name!s:.40}")
    return signal


def why_ignored(
    container: api.Container, status: cri.ContainerStatus | None, *, enabled: bool
) -> str:
    """Why a container may not get the stop signal its spec requests; empty when it will.

    ``status`` is the runtime's status of the container that was made; None: it was not queried.
    """
    name = (container.get("lifecycle") or {}).get("stopSignal")
    if not name:
        return ""
    field = f"lifecycle.stopSignal {name!s:.40}"
    if not enabled:
        return (
            f"{field} is not sent, but the image's stop signal: "
            "the feature gate ContainerStopSignals is off"
        )
    if status is not None and status.stop_signal == cri.SIGNAL_RUNTIME_DEFAULT:
        return (
            f"{field} is not confirmed by the container runtime: "
            "one without support for stop signals sends the image's"
        )
    return ""
