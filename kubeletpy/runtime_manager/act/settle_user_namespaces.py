"""Settles the ids of pods whose records are broken, from the sandboxes that the runtime has."""

from __future__ import annotations

import logging

from kubeletpy.remote.errors import CRIError, NotFound
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.act.user_namespaces import UserNamespaceRanges
from kubeletpy.runtime_manager.config.namespaces import UserNamespaceRange
from kubeletpy.runtime_manager.names.labels import POD_UID, sandbox_rank

log = logging.getLogger(__name__)


async def settle_unknown_ranges(namespaces: UserNamespaceRanges, runtime: RuntimeService) -> None:
    """Settle unknown ranges from the runtime's statuses; others stay unknown."""
    for uid in sorted(namespaces.unknown):
        try:
            answers = await _sandboxes_of(uid, runtime)
        except CRIError as error:
            log.warning(
                "user namespace of a pod stays unknown", extra={"uid": uid, "why": str(error)}
            )
            continue
        if not answers:
            namespaces.settle(uid, None)
        elif (found := newest_range(answers)) is not None:
            namespaces.settle(uid, found)


async def _sandboxes_of(uid: str, runtime: RuntimeService) -> list[cri.PodSandboxStatus]:
    listed = await runtime.list_pod_sandbox(cri.PodSandboxFilter(label_selector={POD_UID: uid}))
    answers = []
    for sandbox in listed:
        try:
            answers.append((await runtime.pod_sandbox_status(sandbox.id)).status)
        except NotFound:
            continue
    return answers


def newest_range(sandboxes: list[cri.PodSandboxStatus]) -> UserNamespaceRange | None:
    """The range of a pod's newest sandbox, preferably a ready one; None: it has none."""
    newest = max(sandboxes, key=lambda s: (s.state == cri.SANDBOX_READY, *sandbox_rank(s)))
    users = newest.linux.namespaces.options.userns_options
    if users.mode != cri.POD or len(users.uids) != 1 or list(users.uids) != list(users.gids):
        return None
    (mapping,) = users.uids
    if mapping.container_id != 0:
        return None
    return UserNamespaceRange(mapping.host_id, mapping.length)
