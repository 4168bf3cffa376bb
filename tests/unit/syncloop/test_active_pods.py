"""Which pods count as using the node."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.syncloop.lifecycle import ActivePods
from tests.kit.pods import make_pod


class Known:
    """Answers of the workers and the status manager, the same for every pod."""

    def __init__(self, *, ended: bool, requested: bool, phase: str | None) -> None:
        self._ended, self._requested, self._phase = ended, requested, phase

    def is_known_terminated(self, uid: str) -> bool:
        return self._ended

    def is_termination_requested(self, uid: str) -> bool:
        return self._requested

    def get_status(self, uid: str) -> Any:
        return None if self._phase is None else {"phase": self._phase}


@pytest.mark.parametrize(
    ("ended", "requested", "in_api", "own", "active"),
    [
        (True, True, "", None, False),
        (True, False, "", None, False),
        (False, True, "Failed", "Failed", True),  # its containers may still run
        (False, False, "Failed", None, False),
        (False, False, "Succeeded", "Running", False),
        (False, False, "", None, True),
        (False, False, "Running", "Running", True),
        (False, False, "Running", "Failed", False),
        (False, False, "Pending", "Succeeded", False),
    ],
)
def test_pods_that_count_as_active(
    ended: bool, requested: bool, in_api: str, own: str | None, active: bool
) -> None:
    known: Any = Known(ended=ended, requested=requested, phase=own)
    pod: Pod = make_pod(phase=in_api)
    pods = PodManager()
    pods.put(pod)
    found = ActivePods(pods, known, known.get_status)
    assert found() == found.active([pod]) == ([pod] if active else [])
