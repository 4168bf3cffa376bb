"""Pods' slices and the limits of other units, kept by systemd.

systemd writes its own limits of a unit to the kernel whenever it realizes a unit below it. Limits
that exist only in the cgroup's files are then lost. So each limit is also a property of its unit.
The files are written first, so that a limit holds at once and exactly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from kubeletpy.base.host.errors import DBusError
from kubeletpy.resources.cgroups.errors import CgroupError
from kubeletpy.resources.cgroups.filesystem import CgroupFilesystem
from kubeletpy.resources.cgroups.limits_read import with_more
from kubeletpy.resources.cgroups.unit_properties import (
    Properties,
    limit_properties,
    new_slice,
    unit_name,
)
from kubeletpy.resources.cgroups.values import CgroupResources

if TYPE_CHECKING:
    from kubeletpy.base.host.dbus import Bus

SYSTEMD = "org.freedesktop.systemd1"
MANAGER = ("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
UNIT_EXISTS = f"{SYSTEMD}.UnitExists"
_ABSENT = (f"{SYSTEMD}.NoSuchUnit", "org.freedesktop.DBus.Error.FileNotFound")


async def system_bus() -> Bus:
    """A connection to the system bus. Raises OSError, TimeoutError, DBusError."""
    from dbus_fast import Message

    from kubeletpy.base.host.dbus import Bus

    def unwanted(_signal: Message) -> bool:
        return False

    return await Bus.connect(wanted=unwanted)


class SliceUnits:
    """Unit properties to set and units to stop; :meth:`settle` makes the calls."""

    def __init__(self, version: int, connect: Callable[[], Awaitable[Bus]] = system_bus) -> None:
        """``version``: of cgroups, 1 or 2."""
        self._version = version
        self._connect = connect
        self._bus: Bus | None = None
        self._turn = asyncio.Lock()
        self._wanted: dict[str, CgroupResources] = {}
        self._applied: dict[str, CgroupResources] = {}
        self._own: set[str] = set()
        """Paths of slices that the agent creates; others must exist."""
        self._found: set[str] = set()
        """Paths whose units existed already: files of their changed properties outlive them."""

    def set_limits(self, path: str, resources: CgroupResources, *, own: bool) -> None:
        """Have a cgroup's unit keep limits from the next :meth:`settle` on.

        ``own``: the slice is created if it does not exist.
        """
        if unit_name(path) is None:
            return
        if own:
            self._own.add(path)
        self._wanted[path] = with_more(self._wanted.get(path), resources)

    def again(self, path: str) -> None:
        """Pass a unit's limits again at the next :meth:`settle`."""
        self._applied.pop(path, None)

    async def settle(self, path: str | None = None) -> None:
        """Pass what systemd has not been passed yet, of one cgroup or of all.

        Raises CgroupError, after the other units were tried.
        """
        paths = [path] if path is not None else list(self._wanted)
        failures: list[CgroupError] = []
        for each in paths:
            wanted = self._wanted.get(each)
            if wanted is None or self._applied.get(each) == wanted:
                continue
            try:
                async with self._turn:
                    await self._apply(each, wanted)
            except CgroupError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    async def stop(self, path: str) -> None:
        """Stop the slice of a pod whose cgroup was removed. Raises CgroupError."""
        self._wanted.pop(path, None)
        self._applied.pop(path, None)
        self._own.discard(path)
        unit = unit_name(path)
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
                    raise CgroupError(f"systemd did not stop {unit}: {_why(error)}") from error

    async def close(self) -> None:
        """End the connection to the bus."""
        bus, self._bus = self._bus, None
        if bus is not None:
            await bus.close()

    async def _apply(self, path: str, wanted: CgroupResources) -> None:
        unit = unit_name(path)
        assert unit is not None  # set_limits() keeps no other path
        limits = limit_properties(self._version, wanted)
        try:
            if path in self._own and path not in self._applied:
                await self._start(path, unit, limits)
            elif limits:
                await self._call("SetUnitProperties", "sba(sv)", unit, True, _variants(limits))
        except (OSError, DBusError, TimeoutError) as error:
            raise CgroupError(
                f"systemd did not take the limits of {unit}, which therefore do not last: "
                f"{_why(error)}"
            ) from error
        self._applied[path] = wanted

    async def _start(self, path: str, unit: str, limits: Properties) -> None:
        properties = _variants({**new_slice(self._version), **limits})
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
            self._bus = await self._connect()
        await self._bus.call(SYSTEMD, *MANAGER, member, signature, *arguments)


class SystemdFilesystem(CgroupFilesystem):
    """The kernel's files, with every limit also set as a property of the cgroup's unit."""

    def __init__(self, files: CgroupFilesystem, slices: SliceUnits) -> None:
        super().__init__(files.version, files.hierarchies, files.others)
        self.slices = slices

    def create(self, path: str, resources: CgroupResources, *, group: bool = False) -> None:
        """Create a cgroup and its slice, see the base class. Raises CgroupError."""
        super().create(path, resources, group=group)
        self.slices.set_limits(path, resources, own=True)

    def write(self, path: str, resources: CgroupResources) -> None:
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


def _variants(properties: Properties) -> list[list[Any]]:
    from dbus_fast import Variant

    return [[name, Variant(kind, held)] for name, (kind, held) in properties.items()]


def _why(error: Exception) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else str(error)
