"""Builds what pods need to start without an API server: the record, and the clients that keep it.

Apart: an agent that runs with --offline-start=Never loads none of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kubeletpy.agent.context import ApiClients, Component, Outside, Task
from kubeletpy.base.structs import Struct, replace
from kubeletpy.config import NodeFlags
from kubeletpy.config.flags import OfflineStart
from kubeletpy.kubeapi.last_known import LastKnown
from kubeletpy.kubeapi.offline import ApiContact, HeartbeatApi, OfflineApi
from kubeletpy.kubeapi.offline_record import OfflineRecord
from kubeletpy.syncloop.offline_start import OfflineStarts

if TYPE_CHECKING:
    from kubeletpy.base.api import types as api
    from kubeletpy.base.api.types import JSON
    from kubeletpy.syncloop.sources.static_uids import Decided


class Offline(Struct, frozen=True):
    """The objects for starts without an API server."""

    mode: OfflineStart
    contact: ApiContact
    known: LastKnown
    record: OfflineRecord
    clients: ApiClients
    pods_api: OfflineApi

    def starts(
        self, runs: Callable[[str], bool], node: Callable[[], api.Node], decided: Decided
    ) -> OfflineStarts:
        """Build the decisions about pods before contact."""
        return OfflineStarts(self.mode, self.contact, runs, node, decided)

    def keep_status(self, uid: str, status: api.PodStatus | None) -> None:
        """Keep the newest status of a pod, whether or not the API has it."""
        self.known.note_status(uid, cast("JSON | None", status))

    def components(self) -> list[Component]:
        """The components, which are to start before all others."""
        record = self.record
        return [
            Component(
                record,
                (Task("offline-record", record.run_contact),),
                start=record.load,
                close=record.close,
            ),
            Component(self.pods_api, close=self.pods_api.close),
        ]


def build_offline(flags: NodeFlags, outside: Outside, node_name: str) -> Offline | None:
    """The objects, and the clients to use instead of those of ``outside``; None: there is no API,
    or nothing can be compared over boots."""
    clients, host = outside.api, outside.offline_host
    if clients is None or host is None:
        return None
    contact, known = ApiContact(host.moment), LastKnown()
    pods = OfflineApi(clients.pods, contact, known, node_name, outside.clock)
    return Offline(
        OfflineStart(flags.offline_start),
        contact,
        known,
        OfflineRecord(Path(flags.root_dir), node_name, known, contact, host.run),
        replace(clients, pods=pods, heartbeats=HeartbeatApi(clients.heartbeats, contact)),
        pods,
    )
