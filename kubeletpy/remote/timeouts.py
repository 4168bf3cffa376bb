"""How long a CRI call may take: one function from the call to its deadline. Pure.

The rules are the kubelet's (cri-client; docs/reference/constants.csv: cri). Must never wait.
"""

from __future__ import annotations

DEFAULT_REQUEST_TIMEOUT = 120.0
"""Seconds; KubeletConfiguration's runtimeRequestTimeout."""

NO_DEADLINE = frozenset({"PullImage", "GetContainerEvents"})
"""Calls without a time limit: cancel them to give up."""


def deadline_for(method: str, request_timeout: float, *, own: float = 0.0) -> float | None:
    """Seconds that ``method`` (the CRI's name) may take, None for no limit.

    ``request_timeout`` is runtimeRequestTimeout in seconds. ``own`` is the timeout the request
    itself carries, in seconds: StopContainer's grace period, ExecSync's and CheckpointContainer's
    timeout.
    """
    if method in NO_DEADLINE:
        return None
    if method == "RunPodSandbox":
        return 2 * request_timeout
    if method == "StopContainer":
        return own + request_timeout
    if method == "ExecSync":
        return own + request_timeout if own else None
    if method == "CheckpointContainer":
        return max(own, request_timeout)
    return request_timeout
