"""Events of volumes that change their group, are shared, or are mapped as devices."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from kubeletpy.metrics.families import Families
from kubeletpy.metrics.volumes import VolumeMetrics
from kubeletpy.volumes.claims.model import FailureOutcome, FilesystemMismatch, Mode, Published
from kubeletpy.volumes.operations import acts
from kubeletpy.volumes.operations.acts import Expander, VolumeActs
from kubeletpy.volumes.operations.model import Operation, OperationKind
from kubeletpy.volumes.operations.reporter import Reporter
from tests.unit.volumes.claim_objects import pod, pv, spec
from tests.virtual_time import on_virtual_time

HUGE = "/k/pods/u1/volumes/kubernetes.io~csi/pv1/mount"


class Recorder:
    def __init__(self) -> None:
        self.events: list[tuple[float, str, str, str]] = []

    def event(self, involved: Any, kind: str, reason: str, message: str) -> None:
        now = asyncio.get_running_loop().time()
        self.events.append((now, involved["kind"], str(reason), message))


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
    recorder = Recorder()
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
        ("SuccessfulMountVolume", word + 'volumeMapPath "/k/pods/u1/volumeDevices/p"'),
    ]


async def test_a_different_file_system_is_reported_on_the_volume() -> None:
    recorder, plugin = Recorder(), cast(Any, Plugin(Published(HUGE)))
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
