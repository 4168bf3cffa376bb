"""Whether a container's start was canceled with the agent that requested it. Pure.

containerd cancels StartContainer when its client disconnects. The container then is EXITED with
reason StartError, exit code 128, no start time, and a message that ends with the canceled call. No
process of the container was left running, so this end has no meaning for the pod. CRI-O and
cri-dockerd complete the call without its client. Source: docs/reference/behaviour.md, c11.
"""

from __future__ import annotations

import re

from kubeletpy.remote.generated import api_pb2 as cri

START_ERROR = "StartError"
START_ERROR_CODE = 128
MESSAGE_TAIL = 512
"""Characters at the end of a message that are searched."""

_CANCELED = re.compile(r"(?:^|: )context canceled(?:: unknown)?$")
_SHIM_KILLED = re.compile(r"failed to start shim: start failed: .*: signal: killed(?:: unknown)?$")
"""containerd 1.6 kills the shim's start helper instead of naming the canceled call."""


def is_abandoned_start(status: cri.ContainerStatus) -> bool:
    """Whether the runtime's record shows a start that ended with its client.

    A command that cannot be executed also ends with StartError and 128, but runc's message ends
    with the cause (``no such file or directory``), whatever the command contains.
    """
    return (
        status.state == cri.CONTAINER_EXITED
        and status.reason == START_ERROR
        and status.exit_code == START_ERROR_CODE
        and status.started_at <= 0
        and is_canceled_call(status.message)
    )


def is_canceled_call(message: str) -> bool:
    """Whether an error text of StartContainer ends with the cancellation of the call."""
    tail = message[-MESSAGE_TAIL:].rstrip()
    return bool(_CANCELED.search(tail) or _SHIM_KILLED.search(tail))
