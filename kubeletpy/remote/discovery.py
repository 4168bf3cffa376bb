"""Queries a runtime's configuration at startup. Must never delay the start for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kubeletpy.remote.errors import CRIError, Unimplemented
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService

TRIES = 3
PAUSE = 2.0
"""Seconds between two attempts."""


async def cgroup_driver(
    runtime: RuntimeService, losing_support: Callable[[], None] = lambda: None
) -> str | None:
    """The runtime's cgroup driver, "systemd" or "cgroupfs"; None when it does not report it.

    A runtime without the call (containerd before 2.0) or without a Linux answer does not report
    it: then KubeletConfiguration's cgroupDriver stands. If the call is missing, ``losing_support``
    is called: future kubelets will not start with such a runtime. Other failures are tried TRIES
    times (as the kubelet does); raises the last CRIError.
    """
    tries = 0
    while True:
        try:
            answer = await runtime.runtime_config()
            break
        except Unimplemented:
            losing_support()
            return None
        except CRIError:
            tries += 1
            if tries == TRIES:
                raise
        await asyncio.sleep(PAUSE)
    if not answer.HasField("linux"):
        return None
    return "systemd" if answer.linux.cgroup_driver == cri.CgroupDriver.SYSTEMD else "cgroupfs"
