"""Calls iscsiadm, and writes secrets into its records.

Other processes can see arguments, so secrets are never among them: iscsiadm keeps its records in
files that only root can read, and CHAP credentials are written there. Source:
docs/reference/behaviour-storage.md, sq; iscsiadm(8).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import partial
from glob import escape
from pathlib import Path

from kubeletpy.base.host.files import write_private
from kubeletpy.volumes.claims.on_disk import FailureOutcome
from kubeletpy.volumes.claims.operation import OperationFailed
from kubeletpy.volumes.intree.base import InThread, run
from kubeletpy.volumes.intree.iscsi.target import (
    DISCOVERY_KEYS,
    SESSION_KEYS,
    IscsiDisk,
    settings_in,
    transport_in,
    with_values,
)

log = logging.getLogger(__name__)

PROGRAM = "iscsiadm"
DATABASES = ("/etc/iscsi", "/var/lib/iscsi")
"""Where distributions keep its records."""
EVENT_WORD = "MountVolume.WaitForAttach"
LOGIN_S = 150.0
"""Seconds for a login: by default, iscsid tries an unanswered one 8 times for 15 s each."""
_EXISTS = 15
_NO_SESSION, _NO_RECORD, _NO_IFACE = 2, 21, 7
MAX_RECORD = 1 << 16


def iscsi_failure(
    message: str, call: str, outcome: FailureOutcome = FailureOutcome.UNCERTAIN
) -> OperationFailed:
    """The failure of a call on the way to an attached disk."""
    return OperationFailed(outcome, message, event_word=EVENT_WORD, call=call)


class Iscsiadm:
    """The iscsiadm of one node."""

    def __init__(self, in_thread: InThread, databases: tuple[str, ...] = DATABASES) -> None:
        self._in_thread = in_thread
        self._databases = databases

    async def transport(self, iface: str) -> str:
        """The transport of an iface: ``tcp``, … Raises OperationFailed."""
        call = f"iscsiadm: show iface {iface}"
        found = transport_in(await self._run(call, "-m", "iface", "-I", iface, "-o", "show"))
        if not found:
            raise iscsi_failure(f"iface {iface} has no transport", call, FailureOutcome.FINAL)
        return found

    async def make_iface(self, disk: IscsiDisk) -> None:
        """Make a volume's own iface: a copy of its source's iface with another initiator name.
        Raises OperationFailed.
        """
        call = f"iscsiadm: make iface {disk.iface}"
        shown = await self._run(call, "-m", "iface", "-I", disk.base_iface, "-o", "show")
        settings = {**settings_in(shown), "iface.initiatorname": disk.initiator}
        own = ("-m", "iface", "-I", disk.iface, "-o")
        await self._run(call, *own, "new", fine=(_EXISTS,))
        for key, value in sorted(settings.items()):
            await self._run(call, *own, "update", "-n", key, "-v", value)

    async def forget_iface(self, disk: IscsiDisk) -> None:
        """Remove a volume's own iface, if it exists. Raises OperationFailed."""
        if disk.owns_iface:
            call = f"iscsiadm: remove iface {disk.iface}"
            own = ("-m", "iface", "-I", disk.iface, "-o", "delete")
            await self._run(call, *own, fine=(_NO_SESSION, _NO_RECORD, _NO_IFACE))

    async def discover(self, disk: IscsiDisk, portal: str, chap: Mapping[str, str] | None) -> None:
        """Discover the target at a portal. ``chap`` None: discovery needs none. Raises
        OperationFailed.
        """
        call = f"discovery of iSCSI portal {portal}"
        record = ("-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", disk.iface)
        await self._run(call, *record, "-o", "new", fine=range(1, 256))
        place = f"send_targets/{_address(portal)}/st_config"
        if chap is not None:
            await self._update(call, record, "discovery.sendtargets.auth.authmethod", "CHAP")
            await self._write(call, (place,), {key: chap.get(key, "") for key in DISCOVERY_KEYS})
        try:
            await self._run(call, *record, "--discover", timeout=LOGIN_S)
        except OperationFailed:
            await self._run(call, *record, "-o", "delete", fine=range(1, 256))
            raise
        if chap is not None:  # they are not needed there any more
            await self._write(call, (place,), dict.fromkeys(DISCOVERY_KEYS, ""))

    async def log_in(self, disk: IscsiDisk, portal: str, chap: Mapping[str, str] | None) -> None:
        """Start a session through a discovered portal. Raises OperationFailed."""
        call = f"login to iSCSI target {disk.iqn} at {portal}"
        record = ("-m", "node", "-p", portal, "-T", disk.iqn, "-I", disk.iface)
        # other LUNs of the target do not concern this node: nobody would notice when they go
        await self._try(call, *record, "-o", "update", "-n", "node.session.scan", "-v", "manual")
        if chap is not None:
            await self._update(call, record, "node.session.auth.authmethod", "CHAP")
            node = f"nodes/{escape(disk.iqn)}/{escape(_address(portal))}*"
            places = (f"{node}/{escape(disk.iface)}", node)
            await self._write(call, places, {key: chap.get(key, "") for key in SESSION_KEYS})
        try:
            await self._run(call, *record, "--login", fine=(_EXISTS,), timeout=LOGIN_S)
        except OperationFailed:
            await self._run(call, *record, "-o", "delete", fine=range(1, 256))
            raise
        # a starting node must not wait for a target before the agent is running
        await self._try(call, *record, "-o", "update", "-n", "node.startup", "-v", "manual")

    async def log_out(self, disk: IscsiDisk, portal: str) -> None:
        """End the session through a portal, if there is one, and delete its record. Raises
        OperationFailed.
        """
        call = f"logout from iSCSI target {disk.iqn} at {portal}"
        record = ("-m", "node", "-p", portal, "-T", disk.iqn, "-I", disk.iface)
        gone = (_NO_SESSION, _NO_RECORD)
        await self._run(call, *record, "--logout", fine=gone, timeout=LOGIN_S)
        await self._run(call, *record, "-o", "delete", fine=gone)

    async def _update(self, call: str, record: tuple[str, ...], key: str, value: str) -> None:
        await self._run(call, *record, "-o", "update", "-n", key, "-v", value)

    async def _try(self, call: str, *args: str) -> None:
        """Apply a setting that old versions do not have."""
        try:
            await self._run(call, *args)
        except OperationFailed as error:
            log.warning(
                "iscsiadm did not take a setting", extra={"call": call, "why": error.message}
            )

    async def _run(
        self,
        call: str,
        *args: str,
        fine: Collection[int] = (),
        timeout: float | None = None,
    ) -> str:
        return await run(
            PROGRAM, args, call=call, event_word=EVENT_WORD, fine=fine, timeout=timeout
        )

    async def _write(self, call: str, places: tuple[str, ...], values: Mapping[str, str]) -> None:
        found = await self._in_thread(partial(self._write_now, places, values), call)
        if not found:
            where = " and ".join(self._databases)
            message = f"iscsiadm's record {places[0]} is not in {where}: CHAP can't be set up"
            raise iscsi_failure(message, call, FailureOutcome.FINAL)

    def _write_now(self, places: tuple[str, ...], values: Mapping[str, str]) -> bool:
        """Blocks. Raises OSError."""
        files = [
            path
            for database in self._databases
            for place in places
            for path in Path(database).glob(place)
            if path.is_file() and not path.is_symlink()
        ]
        for path in files:
            with path.open(encoding="utf-8", errors="surrogateescape") as file:
                record = file.read(MAX_RECORD)
            made = with_values(record, values)
            write_private(path, made.encode(errors="surrogateescape"))
        return bool(files)


def _address(portal: str) -> str:
    """A portal as spelled in names of records."""
    address, _, port = portal.rpartition(":")
    return f"{address.removeprefix('[').removesuffix(']')},{port}"
