"""Writes to a claim during an expansion, also when others write to it at the same time."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kubeletpy.base.clock import SystemClock
from kubeletpy.kubeapi.errors import Conflict
from kubeletpy.volumes.claims.model import (
    ExpansionFailed,
    ExpansionProblem,
    OperationFailed,
    VolumeSpec,
)
from kubeletpy.volumes.operations.acts import CLAIM_READINGS, Expander, pod_use
from tests.unit.volumes.claim_objects import claim, pod, pv, spec

GIB = 1 << 30


class ClaimApi:
    """One claim, with the API's rule for versions; ``others`` write before each of our writes."""

    def __init__(self, stored: dict[str, Any], others: list[dict[str, Any]]) -> None:
        self.claim = {**stored, "metadata": {**stored["metadata"], "resourceVersion": "1"}}
        self.others = others
        self.written: list[dict[str, Any]] = []

    def _write(self, status: dict[str, Any]) -> None:
        version = str(int(self.claim["metadata"]["resourceVersion"]) + 1)
        merged = {**self.claim["status"], **status}
        kept = {name: value for name, value in merged.items() if value != {"storage": None}}
        metadata = {**self.claim["metadata"], "resourceVersion": version}
        self.claim = {**self.claim, "metadata": metadata, "status": kept}

    async def patch(self, resource: Any, name: str, patch: dict[str, Any], **supplied: Any) -> Any:
        assert (name, supplied) == ("data", {"namespace": "ns", "subresource": "status"})
        if self.others:
            self._write(self.others.pop(0))
        desired = patch.get("metadata", {}).get("resourceVersion")
        if desired not in (None, self.claim["metadata"]["resourceVersion"]):
            raise Conflict("the object has been modified", code=409)
        self.written.append(patch["status"])
        self._write(patch["status"])
        return self.claim

    async def get(self, resource: Any, name: str, namespace: str) -> Any:
        return self.claim


class Grower:
    """A volume plugin whose volumes grow."""

    def __init__(self) -> None:
        self.requested: list[int] = []

    async def expand(self, spec: VolumeSpec, size: int, use: Any) -> int:
        self.requested.append(size)
        return size


class Events:
    def event(self, involved: Any, kind: str, reason: str, message: str) -> None:
        pass


def pending(size: str = "2Gi") -> dict[str, Any]:
    status = {
        "allocatedResources": {"storage": size},
        "allocatedResourceStatuses": {"storage": "NodeResizePending"},
    }
    return claim(status=status)


async def grow(stored: dict[str, Any], *others: dict[str, Any]) -> tuple[int, ClaimApi, Grower]:
    api, grower = ClaimApi(stored, list(others)), Grower()
    expander = Expander(cast(Any, api), cast(Any, Events()), SystemClock(), "n")
    volume = spec(claim=api.claim, pv=pv(capacity={"storage": "2Gi"}))
    done = await expander.expand(cast(Any, grower), volume, pod_use(pod()))
    return done.size, api, grower


@pytest.mark.parametrize("stored", [pending(), claim()], ids=["recovery", "legacy"])
async def test_a_grown_volume_is_reported_with_the_versions_of_our_own_writes(
    stored: dict[str, Any],
) -> None:
    size, api, grower = await grow(stored)
    assert (size, grower.requested) == (2 * GIB, [2 * GIB])
    assert api.claim["status"]["capacity"] == {"storage": "2Gi"}
    assert "allocatedResourceStatuses" not in api.claim["status"]


@pytest.mark.parametrize("before", range(2), ids=["before progress", "before success"])
async def test_a_claim_that_others_write_to_is_read_again_and_its_volume_grown_once(
    before: int,
) -> None:
    seen: list[dict[str, Any]] = [{}] * before
    size, api, grower = await grow(pending(), *seen, {"phase": "Bound"})
    assert (size, grower.requested) == (2 * GIB, [2 * GIB])
    assert api.claim["status"]["capacity"] == {"storage": "2Gi"}


async def test_an_expansion_that_the_controller_has_taken_back_is_not_reported() -> None:
    retried = {"allocatedResourceStatuses": {"storage": "ControllerResizeInProgress"}}
    size, api, grower = await grow(pending(), retried)
    assert (size, grower.requested, api.written) == (GIB, [], [])


async def test_a_claim_that_changes_all_the_time_is_left_for_later() -> None:
    with pytest.raises(OperationFailed, match="changed by others again and again"):
        await grow(pending(), *[{"phase": "Bound"}] * (2 * CLAIM_READINGS))


class Refuses:
    """A volume plugin whose volumes do not grow."""

    async def expand(self, spec: VolumeSpec, size: int, use: Any) -> int:
        raise ExpansionFailed(ExpansionProblem.REFUSED, "no")


async def test_a_refused_size_that_is_no_longer_requested_is_given_up() -> None:
    """docs/reference/behaviour-storage.md, so3: its controller then expands to the new size."""
    api = ClaimApi(pending(), [])
    api.claim["spec"] = {**api.claim["spec"], "resources": {"requests": {"storage": "2Gi"}}}
    expander = Expander(cast(Any, api), cast(Any, Events()), SystemClock(), "n")

    async def tried() -> str:
        volume = spec(claim=api.claim, pv=pv(capacity={"storage": "2Gi"}))
        with pytest.raises(OperationFailed):
            await expander.expand(cast(Any, Refuses()), volume, pod_use(pod()))
        return str(api.claim["status"]["allocatedResourceStatuses"]["storage"])

    assert [await tried(), await tried()] == ["NodeResizeInProgress"] * 2, "it is still requested"
    api.claim["spec"] = {**api.claim["spec"], "resources": {"requests": {"storage": "1536Mi"}}}
    assert await tried() == "NodeResizeInfeasible"
