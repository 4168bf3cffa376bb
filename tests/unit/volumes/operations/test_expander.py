"""Writes to a claim during an expansion, also when others write to it at the same time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kubeletpy.base.clock import SystemClock
from kubeletpy.kubeapi.errors import Conflict
from kubeletpy.metrics.families import Families
from kubeletpy.metrics.volumes import VolumeMetrics
from kubeletpy.volumes.claims.model import (
    ExpansionFailed,
    ExpansionProblem,
    FailureOutcome,
    FilesystemMismatch,
    Mode,
    OperationFailed,
    Published,
    VolumeSpec,
)
from kubeletpy.volumes.operations import acts
from kubeletpy.volumes.operations.acts import CLAIM_READINGS, Expander, VolumeActs, pod_use
from kubeletpy.volumes.operations.model import Operation, OperationKind
from kubeletpy.volumes.operations.reporter import Reporter
from tests.kit.events import Recorder
from tests.kit.virtual_time import on_virtual_time
from tests.kit.volumes import claim, pod, pv, spec

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


def pending(size: str = "2Gi") -> dict[str, Any]:
    status = {
        "allocatedResources": {"storage": size},
        "allocatedResourceStatuses": {"storage": "NodeResizePending"},
    }
    return claim(status=status)


async def grow(stored: dict[str, Any], *others: dict[str, Any]) -> tuple[int, ClaimApi, Grower]:
    api, grower = ClaimApi(stored, list(others)), Grower()
    expander = Expander(cast(Any, api), Recorder(), SystemClock(), "n")
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
    expander = Expander(cast(Any, api), Recorder(), SystemClock(), "n")

    async def tried() -> str:
        volume = spec(claim=api.claim, pv=pv(capacity={"storage": "2Gi"}))
        with pytest.raises(OperationFailed):
            await expander.expand(cast(Any, Refuses()), volume, pod_use(pod()))
        return str(api.claim["status"]["allocatedResourceStatuses"]["storage"])

    assert [await tried(), await tried()] == ["NodeResizeInProgress"] * 2, "it is still requested"
    api.claim["spec"] = {**api.claim["spec"], "resources": {"requests": {"storage": "1536Mi"}}}
    assert await tried() == "NodeResizeInfeasible"


# Events of volumes that change their group, are shared, or are mapped as devices.

HUGE = "/k/pods/u1/volumes/kubernetes.io~csi/pv1/mount"


class TimedRecorder:
    def __init__(self) -> None:
        self.events: list[tuple[float, str, str, str]] = []

    def event(self, ref: Any, kind: str, reason: str, text: str, annotations: Any = None) -> None:
        now = asyncio.get_running_loop().time()
        self.events.append((now, ref["kind"], str(reason), text))


class Plugin:
    name = "kubernetes.io/csi"

    def __init__(self, published: Published) -> None:
        self._published = published

    def metric_name(self, about: Any) -> str:
        return self.name

    async def publish(self, *args: Any, remount: bool) -> Published:
        return self._published


class Slow:
    """Threads whose work takes more than a minute."""

    async def run(self, work: Any) -> None:
        begun = asyncio.get_running_loop().time()
        *_, progress = work.args
        while (spent := asyncio.get_running_loop().time() - begun) < 200:
            progress.files = int(spent * 10)
            await asyncio.sleep(1)


async def published(
    plugin: Plugin,
    kind: OperationKind = OperationKind.PUBLISH,
    *,
    patient: Any = None,
    **changes: Any,
) -> list[tuple[float, str, str, str]]:
    recorder = TimedRecorder()
    no = cast(Any, None)
    made = VolumeActs(Expander(no, no, no, "n"), Reporter(recorder, VolumeMetrics(Families())))
    if patient is not None:
        made._patient = patient
    desired = spec(**changes)
    operation = Operation(kind, desired.unique_name, plugin.name, "", "u1", desired)
    user = pod(securityContext={"fsGroup": 7})
    await made.carry_out(operation, cast(Any, plugin), user, True, None)
    return recorder.events


@on_virtual_time
async def test_a_long_walk_reports_its_progress() -> None:
    plugin = Plugin(Published(HUGE, give_to_group=True))
    about = "Setting volume ownership for u1/volumes/kubernetes.io~csi/pv1/mount"
    start = asyncio.get_running_loop().time()
    events = await published(plugin, patient=Slow())
    await asyncio.sleep(100)
    assert [(at - start, reason) for at, _, reason, _ in events] == [
        (at, "VolumePermissionChangeInProgress")
        for at in (
            acts.FIRST_NOTICE_S,
            acts.FIRST_NOTICE_S + acts.NOTICE_S,
            acts.FIRST_NOTICE_S + 2 * acts.NOTICE_S,
        )
    ]
    texts = [text for *_, text in events]
    assert texts[0].startswith(f"{about} is taking longer than expected, consider using")
    assert texts[1:] == [f"{about}, processed {files} files." for files in (890, 1490)]


async def test_a_different_group_is_reported() -> None:
    events = await published(Plugin(Published(HUGE, shared_group=9)))
    assert [event[1:] for event in events] == [
        (
            "Pod",
            "AlreadyMountedVolume",
            "The requested fsGroup is 7, but the volume pv1 has GID 9. "
            "The volume may not be shareable.",
        )
    ]


async def test_devices_are_reported_once() -> None:
    plugin = Plugin(Published("/k/pods/u1/volumeDevices/p/pv1", map_directory="/m"))
    word = 'MapVolume.MapPodDevice succeeded for volume "pv1" '
    events = await published(plugin, mode=Mode.BLOCK)
    assert [event[2:] for event in events] == [
        ("SuccessfulMountVolume", word + 'globalMapPath "/m"'),
        ("SuccessfulMountVolume", word + 'volumeMapPath "/k/pods/u1/volumeDevices/p"'),
    ]
    assert await published(plugin, OperationKind.REPUBLISH, mode=Mode.BLOCK) == []
    unmapped = Plugin(Published("/k/pods/u1/volumeDevices/p/pv1"))
    assert [event[2:] for event in await published(unmapped, mode=Mode.BLOCK)] == [
        ("SuccessfulMountVolume", word + 'volumeMapPath "/k/pods/u1/volumeDevices/p"')
    ]


async def test_a_different_file_system_is_reported_on_the_volume() -> None:
    recorder, plugin = TimedRecorder(), cast(Any, Plugin(Published(HUGE)))
    reporter = Reporter(recorder, VolumeMetrics(Families()))
    desired = spec(pv=pv())
    operation = Operation(OperationKind.STAGE, desired.unique_name, plugin.name, "", "u1", desired)
    failed = FilesystemMismatch(FailureOutcome.UNCERTAIN, "it holds xfs")
    reporter.ended(operation, plugin, pod(), 1.0, failed)
    assert [event[1:] for event in recorder.events] == [
        ("Pod", "FailedMount", 'MountVolume.MountDevice failed for volume "pv1" : it holds xfs'),
        (
            "PersistentVolume",
            "FailedMountOnFilesystemMismatch",
            'MountVolume failed for volume "pv1" it holds xfs',
        ),
    ]
