"""Which ids of the node a pod with hostUsers false is mapped to.

Each such pod has a range of its own, written into its directory before it is used, so that a
restarted agent knows it. Must never give a range to two pods, nor one that has the node's own ids
(the first ``ids_per_pod``). Source: docs/reference, security context (hostUsers), constants.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from kubeletpy.host.private_files import write_private
from kubeletpy.pods.pod import Pod
from kubeletpy.runtime_manager.config_errors import ContainerConfigError, SandboxConfigError
from kubeletpy.runtime_manager.namespaces import UserNamespaceRange, wants_user_namespace

log = logging.getLogger(__name__)

FILE = "userns"
IDS_PER_POD = 65_536
MAX_FILE = 4096
SUBORDINATE_IDS = (Path("/etc/subuid"), Path("/etc/subgid"))
OWNER = "kubelet"
"""Whose subordinate ids are the pods', where there is such a user."""


class UserNamespaceError(SandboxConfigError, ContainerConfigError):
    """The pod can not have a user namespace."""


class UserNamespaces:
    """The ranges of the pods of a node."""

    def __init__(
        self,
        pods_dir: Path,
        *,
        supporting: Collection[str],
        max_pods: int,
        ids_per_pod: int = IDS_PER_POD,
        owned: tuple[int, int] | None = None,
    ) -> None:
        """Args:
        pods_dir: ``{root}/pods``.
        supporting: names of the runtime handlers that have user namespaces; "" is the default one.
        owned: first id and number of ids set aside for pods; None: those after the node's own.
        """
        first, count = owned or (ids_per_pod, ids_per_pod * max_pods)
        self._pods_dir = pods_dir
        self._supporting = frozenset(supporting)
        self._length = ids_per_pod
        self._ranges = range(max(first, ids_per_pod), first + count - ids_per_pod + 1, ids_per_pod)
        self._used: dict[str, int] = {}
        for file in pods_dir.glob(f"*/{FILE}"):
            try:
                self._used[file.parent.name] = self._read(file)
            except UserNamespaceError as error:
                log.warning("user namespace of a pod is not known", extra={"why": str(error)})

    def of(self, pod: Pod) -> UserNamespaceRange | None:
        """The pod's range, chosen at the first call; None for a pod with the node's users.

        Raises:
            UserNamespaceError: it can not have one.
        """
        if not wants_user_namespace(pod):
            return None
        if not self._supporting:
            raise UserNamespaceError(_refusal(""))
        first = self._used.get(pod.uid)
        if first is None:
            first = self._choose(pod)
        return UserNamespaceRange(first, self._length)

    def checked(self, handler: Callable[[Pod], Awaitable[str]]) -> Callable[[Pod], Awaitable[str]]:
        """A lookup of runtime handlers that refuses one without what the pod needs."""

        async def lookup(pod: Pod) -> str:
            name = await handler(pod)
            if wants_user_namespace(pod) and name not in self._supporting:
                raise UserNamespaceError(_refusal(name))
            return name

        return lookup

    def keep(self, uids: Collection[str]) -> None:
        """Give back the ranges of all other pods."""
        for uid in [uid for uid in self._used if uid not in uids]:
            try:
                (self._pods_dir / uid / FILE).unlink(missing_ok=True)
            except OSError as error:
                # as long as the file says so the range counts as given
                log.warning(
                    "user namespace of a gone pod stays", extra={"uid": uid, "why": str(error)}
                )
                continue
            del self._used[uid]

    def _choose(self, pod: Pod) -> int:
        taken = set(self._used.values())
        first = next((number for number in self._ranges if number not in taken), None)
        if first is None:
            raise UserNamespaceError("could not find an empty slot to allocate a user namespace")
        mapping = [{"hostId": first, "containerId": 0, "length": self._length}]
        text = json.dumps({"uidMappings": mapping, "gidMappings": mapping})
        try:
            write_private(self._pods_dir / pod.uid / FILE, text)
        except OSError as error:
            raise UserNamespaceError(f"create user namespace: {error}") from error
        self._used[pod.uid] = first
        return first

    def _read(self, file: Path) -> int:
        try:
            with file.open() as opened:
                found = json.loads(opened.read(MAX_FILE))
            (uids,), (gids,) = found["uidMappings"], found["gidMappings"]
            first, length = uids["hostId"], uids["length"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UserNamespaceError(f"{file}: {error}") from error
        sound = uids == gids and uids.get("containerId") == 0 and length == self._length
        if not sound or first not in self._ranges or first in self._used.values():
            raise UserNamespaceError(f"{file}: not a range that this node gives to pods")
        return int(first)


def subordinate_ids(files: Collection[Path] = SUBORDINATE_IDS) -> tuple[int, int] | None:
    """First id and number of ids of the user ``kubelet``; None where it has none of its own.

    Only a range that is the same for users and for groups can be used.
    """
    found = set()
    for file in files:
        try:
            lines = file.read_text().splitlines()
        except OSError:
            return None
        owned = [line.split(":") for line in lines if line.startswith(f"{OWNER}:")]
        if len(owned) != 1 or len(owned[0]) != 3 or not all(map(str.isdigit, owned[0][1:])):
            return None
        found.add((int(owned[0][1]), int(owned[0][2])))
    return found.pop() if len(found) == 1 else None


def _refusal(handler: str) -> str:
    who = f'RuntimeClass handler "{handler}"' if handler else "runtime"
    return f"can't set `spec.hostUsers: false`, {who} does not support user namespaces"
