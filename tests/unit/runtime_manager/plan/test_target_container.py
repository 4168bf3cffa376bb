"""The container whose processes an ephemeral container sees."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kubeletpy.pods.runtime_status import ContainerConfigError
from kubeletpy.runtime_manager.plan.actions import target_id
from tests.unit.runtime_manager.pods_and_records import exited, has, running

STATUS = has(running("app"), exited("done"))


def of(target: object) -> Any:
    return cast(Any, {"name": "debug", "targetContainerName": target})


@pytest.mark.parametrize(("target", "found"), [("app", "id-app"), ("", ""), (None, ""), (5, "")])
def test_target(target: object, found: str) -> None:
    assert target_id(STATUS, of(target)) == found


@pytest.mark.parametrize("target", ["done", "unheard-of"])
def test_a_container_that_does_not_run_is_no_target(target: str) -> None:
    with pytest.raises(ContainerConfigError, match=f'^unable to find target container "{target}"$'):
        target_id(STATUS, of(target))
