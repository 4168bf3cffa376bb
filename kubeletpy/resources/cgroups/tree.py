"""The tree of pods' cgroups on this machine, and its limits as properties of systemd's units.

Each method of the tree is one step of adding to it or removing from it, and does not wait;
:mod:`.pod_cgroups` retries. No cgroup outside the tree is touched, except for the limits of those
that the configuration names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kubeletpy.base.host.errors import DBusError
from kubeletpy.base.structs import Component, Struct, field, replace
from kubeletpy.base.text import number
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import MIN_SHARES, QoSClass, qos_class, weight_to_shares
from kubeletpy.resources.cgroups import values
from kubeletpy.resources.cgroups.filesystem import (
    PAGE,
    CgroupFilesystem,
    as_requested,
    memory_usage,
    read_limits,
    with_more,
)

if TYPE_CHECKING:
    from kubeletpy.base.host.dbus import Bus


class ReservedCgroup(Struct, frozen=True):
    """A cgroup of the machine's owner that enforceNodeAllocatable limits."""

    what: str
    """Its title in messages: "System Reserved", "Kube Reserved Compressible"."""
    path: str
    resources: values.CgroupResources


class TreeOptions(Struct, frozen=True):
    """The configuration of the tree."""

    names: values.PodCgroupNames = field(default_factory=values.PodCgroupNames)
    pods: values.PodCgroupSettings = field(default_factory=values.PodCgroupSettings)
    kubepods: values.CgroupResources = field(default_factory=values.CgroupResources)
    """Limits of all pods together."""
    reserved: Sequence[ReservedCgroup] = ()
    memory: values.ReservedMemory | None = None
    """None: gate QOSReserved is off."""
    driver_reported: bool = False
    """The driver is the one that the runtime reported, and not the configuration's."""


class CgroupTree(Component):
    """``kubepods`` with its groups and pods."""

    files: CgroupFilesystem
    options: TreeOptions
    has_no_quota: Callable[[Pod], bool] = lambda pod: False
    """Whether a pod has exclusive CPUs, so that its CPU time is not limited."""

    def __post_init__(self) -> None:
        self.names = self.options.names
        self._burstable_shares: int | None = None

    def prepare(self) -> None:
        """Create the groups; existing ones keep everything but their fixed settings.

        Raises CgroupError.
        """
        sizes = self.options.pods.hugepage_sizes
        unlimited = values.CgroupResources()
        self.files.create(self.names.kubepods, unlimited, group=True)
        best_effort = self.names.group(QoSClass.BEST_EFFORT)
        self.files.create(best_effort, values.qos_group(0, sizes), group=True)
        burstable = self.names.group(QoSClass.BURSTABLE)
        existed = self.files.exists(burstable)
        self.files.create(burstable, unlimited, group=True)
        if existed:  # its pods keep their share until their number is known
            self._burstable_shares = self._read_shares(burstable)
        else:
            self.set_burstable(0)

    def limit_node(self) -> None:
        """Limit all pods together. Raises CgroupError: the pods use more than that right now."""
        self.files.write(self.names.kubepods, self.options.kubepods)

    def limit_reserved(self, reserved: ReservedCgroup) -> None:
        """Limit one cgroup of the machine's owner. Raises CgroupError: it does not exist."""
        if not self.files.exists(reserved.path):
            raise values.CgroupError(f'"{reserved.path}" cgroup does not exist')
        self.files.write(reserved.path, reserved.resources)

    def set_burstable(self, cpu_milli: int, *, only_more: bool = False) -> None:
        """Give the Burstable group the sum of its pods' requests. Raises CgroupError."""
        desired = values.qos_group(cpu_milli, self.options.pods.hugepage_sizes)
        shares, now = desired.shares or MIN_SHARES, self._burstable_shares
        if shares == now or (only_more and now is not None and shares < now):
            return
        self.files.write(self.names.group(QoSClass.BURSTABLE), desired)
        self._burstable_shares = shares

    def protect(self, guaranteed: int, burstable: int) -> None:
        """Protect the sum of the requests of each class, in bytes. Raises CgroupError."""
        self.files.write(self.names.kubepods, values.kept_group(guaranteed, burstable))
        self.files.write(
            self.names.group(QoSClass.BURSTABLE), values.CgroupResources(memory_low=burstable)
        )

    def protected(self) -> tuple[int, int]:
        """Return the bytes protected for Guaranteed and for Burstable pods; 0 if none are."""
        both = number(self.files.read_file(self.names.kubepods, "memory", "memory.min")) or 0
        burstable = self.names.group(QoSClass.BURSTABLE)
        low = number(self.files.read_file(burstable, "memory", "memory.low")) or 0
        return max(both - low, 0), low

    def unprotect(self) -> None:
        """Clear what a configuration with MemoryQoS has left. Raises CgroupError.

        Settings of pods and containers have no effect below groups that have none.
        """
        if self.files.version != 2:
            return
        low = number(self.files.read_file(self.names.kubepods, "memory", "memory.low")) or 0
        if low or any(self.protected()):
            self.protect(0, 0)

    def limit_group(self, quality: QoSClass, limit: int, *, only_less: bool) -> None:
        """Limit the memory of a group of pods, but not below its usage, which would kill pods.

        Raises CgroupError.
        """
        path, version = self.names.group(quality), self.files.version
        used = memory_usage(version, partial(self.files.read_file, path)) or 0
        limit = max(limit, used, PAGE)
        name = "memory.limit_in_bytes" if version == 1 else "memory.max"
        now = number(self.files.read_file(path, "memory", name))
        if only_less and now is not None and limit >= now:
            return
        self.files.write(path, values.CgroupResources(memory=limit))

    def protect_pod(self, pod: Pod) -> None:
        """Protect what a pod now requests. Raises CgroupError."""
        try:
            self.files.write(self.pod_path(pod), values.protection(pod, self.options.pods))
        except ValueError as error:
            raise values.CgroupError(f"resources of pod {pod.key}: {error}") from error

    def pod_path(self, pod: Pod) -> str:
        """The pod's cgroup, in the driver's form. Raises CgroupError: it cannot be named."""
        try:
            return self.names.pod(pod.uid, qos_class(pod))
        except values.InvalidCgroupName as error:
            raise values.CgroupError(str(error)) from error
        except ValueError as error:
            raise values.CgroupError(f"resources of pod {pod.key}: {error}") from error

    def create_pod(self, pod: Pod) -> None:
        """Create the pod's cgroup with its limits. Raises CgroupError."""
        self.files.create(self.pod_path(pod), self.pod_limits(pod))

    def adopt(self, pod: Pod) -> None:
        """Take over the cgroup of a running pod. Raises CgroupError.

        Its limits are written again if it lost its memory limit (systemd resets what it does not
        contain). Other values are those of a resize that was interrupted, which the resize itself
        ends. Does nothing where no one but the agent writes the limits.
        """
        if self.names.driver is not values.CgroupDriver.SYSTEMD:
            return
        desired = self.pod_limits(pod)
        found = as_requested(self.files.version, self.read_limits(pod), desired)
        resizing = found.memory not in (None, values.NO_LIMIT, desired.memory)
        self.files.create(self.pod_path(pod), found if resizing else desired)

    def pod_limits(self, pod: Pod) -> values.CgroupResources:
        """The limits that a pod should have. Raises CgroupError."""
        try:
            limits = values.pod_resources(pod, self.options.pods)
        except ValueError as error:
            raise values.CgroupError(f"resources of pod {pod.key}: {error}") from error
        if limits.period_us is not None and self.has_no_quota(pod):
            return replace(limits, quota_us=values.NO_LIMIT)
        return limits

    def read_limits(self, pod: Pod) -> values.CgroupResources:
        """The cpu and memory limits that the pod's cgroup has. Raises CgroupError."""
        path = self.pod_path(pod)
        limits = read_limits(self.files.version, partial(self.files.read_file, path))
        if limits is None:
            raise values.CgroupError(f"cgroup {path} does not show its cpu and memory limits")
        return limits

    def starve(self, path: str) -> None:
        """Give a cgroup that cannot be removed yet the minimum of cpu. Raises CgroupError."""
        self.files.write(path, values.CgroupResources(shares=MIN_SHARES))

    def found_pods(self) -> Mapping[str, str]:
        """uid -> path of every pod that has a cgroup in the tree."""
        found: dict[str, str] = {}
        for quality in QoSClass:
            group = self.names.group(quality)
            for directory in self.files.children(group):
                uid = self.names.pod_uid(directory)
                if uid is not None:
                    found[uid] = f"{group}/{directory}"
        return found

    def _read_shares(self, path: str) -> int | None:
        name = "cpu.shares" if self.files.version == 1 else "cpu.weight"
        found = number(self.files.read_file(path, "cpu", name))
        if found is None or self.files.version == 1:
            return found
        return weight_to_shares(found)


# systemd's units.

SYSTEMD = "org.freedesktop.systemd1"
MANAGER = ("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
UNIT_EXISTS = f"{SYSTEMD}.UnitExists"
_ABSENT = (f"{SYSTEMD}.NoSuchUnit", "org.freedesktop.DBus.Error.FileNotFound")


async def system_bus() -> Bus:
    """A connection to the system bus. Raises OSError, TimeoutError, DBusError."""
    from dbus_fast import Message

    from kubeletpy.base.host.dbus import Bus

    def no_signal(_signal: Message) -> bool:
        return False

    return await Bus.connect(desired=no_signal)


class SliceUnits(Component):
    """Unit properties to set and units to stop; :meth:`settle` makes the calls.

    systemd writes its own limits of a unit to the kernel whenever it realizes a unit below it.
    Limits that exist only in the cgroup's files are then lost. So each limit is also a property of
    its unit. The files are written first, so that a limit holds at once and exactly.
    """

    version: int
    """That of cgroups, 1 or 2."""
    connect: Callable[[], Awaitable[Bus]] = system_bus

    def __post_init__(self) -> None:
        self._bus: Bus | None = None
        self._turn = asyncio.Lock()
        self._desired: dict[str, values.CgroupResources] = {}
        self._applied: dict[str, values.CgroupResources] = {}
        self._own: set[str] = set()
        """Paths of slices that the agent creates; others must exist."""
        self._found: set[str] = set()
        """Paths whose units existed already: files of their changed properties outlive them."""

    def set_limits(self, path: str, resources: values.CgroupResources, *, own: bool) -> None:
        """Have a cgroup's unit keep limits from the next :meth:`settle` on.

        ``own``: the slice is created if it does not exist.
        """
        if values.unit_name(path) is None:
            return
        if own:
            self._own.add(path)
        self._desired[path] = with_more(self._desired.get(path), resources)

    def again(self, path: str) -> None:
        """Have the next :meth:`settle` pass a unit's limits again."""
        self._applied.pop(path, None)

    async def settle(self, path: str | None = None) -> None:
        """Pass what systemd has not been passed yet, of one cgroup or of all.

        Raises CgroupError, after the other units were tried.
        """
        paths = [path] if path is not None else list(self._desired)
        failures: list[values.CgroupError] = []
        for each in paths:
            desired = self._desired.get(each)
            if desired is None or self._applied.get(each) == desired:
                continue
            try:
                async with self._turn:
                    await self._apply(each, desired)
            except values.CgroupError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    async def stop(self, path: str) -> None:
        """Stop the slice of a pod whose cgroup was removed. Raises CgroupError."""
        self._desired.pop(path, None)
        self._applied.pop(path, None)
        self._own.discard(path)
        unit = values.unit_name(path)
        if unit is None:
            return
        calls: list[tuple[str, str, tuple[Any, ...]]] = [("StopUnit", "ss", (unit, "replace"))]
        if path in self._found:
            calls.append(("RevertUnitFiles", "as", ([unit],)))
            self._found.discard(path)
        for member, signature, arguments in calls:
            try:
                async with self._turn:
                    await self._call(member, signature, *arguments)
            except (OSError, DBusError, TimeoutError) as error:
                if not (isinstance(error, DBusError) and error.name in _ABSENT):
                    raise values.CgroupError(
                        f"systemd did not stop {unit}: {_why(error)}"
                    ) from error

    async def close(self) -> None:
        """End the connection to the bus."""
        bus, self._bus = self._bus, None
        if bus is not None:
            await bus.close()

    async def _apply(self, path: str, desired: values.CgroupResources) -> None:
        unit = values.unit_name(path)
        assert unit is not None  # set_limits() keeps no other path
        limits = values.limit_properties(self.version, desired)
        try:
            if path in self._own and path not in self._applied:
                await self._start(path, unit, limits)
            elif limits:
                await self._call("SetUnitProperties", "sba(sv)", unit, True, _variants(limits))
        except (OSError, DBusError, TimeoutError) as error:
            raise values.CgroupError(
                f"systemd did not take the limits of {unit}, which therefore do not last: "
                f"{_why(error)}"
            ) from error
        self._applied[path] = desired

    async def _start(self, path: str, unit: str, limits: values.Properties) -> None:
        properties = _variants({**values.new_slice(self.version), **limits})
        try:
            await self._call(
                "StartTransientUnit", "ssa(sv)a(sa(sv))", unit, "replace", properties, []
            )
        except DBusError as error:
            if error.name != UNIT_EXISTS:
                raise
            self._found.add(path)
            if limits:
                await self._call("SetUnitProperties", "sba(sv)", unit, True, _variants(limits))

    async def _call(self, member: str, signature: str, *arguments: Any) -> None:
        if self._bus is None or self._bus.over:
            self._bus = await self.connect()
        await self._bus.call(SYSTEMD, *MANAGER, member, signature, *arguments)


class SystemdFilesystem(CgroupFilesystem):
    """The kernel's files, with every limit also set as a property of the cgroup's unit."""

    def __init__(self, files: CgroupFilesystem, slices: SliceUnits) -> None:
        super().__init__(files.version, files.hierarchies, files.others)
        self.slices = slices

    def create(self, path: str, resources: values.CgroupResources, *, group: bool = False) -> None:
        """Create a cgroup and its slice, see the base class. Raises CgroupError."""
        super().create(path, resources, group=group)
        self.slices.set_limits(path, resources, own=True)

    def write(self, path: str, resources: values.CgroupResources) -> None:
        """Write limits to the files and to the unit, see the base class. Raises CgroupError."""
        super().write(path, resources)
        self.slices.set_limits(path, resources, own=False)

    async def settle(self, path: str | None = None) -> None:
        """Wait until systemd has the limits, see the base class. Raises CgroupError."""
        await self.slices.settle(path)

    async def released(self, path: str) -> None:
        """Stop the slice of a removed cgroup, see the base class. Raises CgroupError."""
        await self.slices.stop(path)

    async def close(self) -> None:
        """End the connection to systemd."""
        await self.slices.close()


def _variants(properties: values.Properties) -> list[list[Any]]:
    from dbus_fast import Variant

    return [[name, Variant(kind, held)] for name, (kind, held) in properties.items()]


def _why(error: Exception) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else str(error)
