"""Assigns a range of the node's ids to each pod with hostUsers false.

Each such pod has a range of its own, written into its directory before it is used, so that a
restarted agent has it. Must never give a range to two pods, nor one that contains the node's own
ids (the first ``ids_per_pod``). While a pod's record can't be read, no other pod gets a range that
may be its own. Source: docs/reference/behaviour.md, j2; docs/reference/constants.csv: userns.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.base.host.files import write_private
from kubeletpy.base.structs import Component, Struct
from kubeletpy.base.text import lines, number
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import ContainerConfigError, SandboxConfigError
from kubeletpy.remote.errors import CRIError, NotFound
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.config.settings import UserNamespaceRange, requests_user_namespace
from kubeletpy.runtime_manager.names import POD_UID, sandbox_rank

log = logging.getLogger(__name__)

FILE = "userns"
IDS_PER_POD = 65_536
MAX_FILE = 4096
UNIT = 65_536
"""Ranges begin and end at multiples of it; the first range is the node's."""
LAST_ID = 2**32 - 2
"""The one after it means "no id": a kernel refuses each map that contains it."""
MAX_LINE = 100
"""Maximum characters of a line that a message quotes."""
MAX_NAMED = 5
"""Maximum pods that a message names."""
SUBORDINATE_IDS = (Path("/etc/subuid"), Path("/etc/subgid"))
OWNER = "kubelet"
"""The user whose subordinate ids the pods get, if it exists."""


class UserNamespaceError(SandboxConfigError, ContainerConfigError):
    """The pod can't have a user namespace."""


class UnusableIds(Exception):
    """The ids that are set aside for pods can't be used.

    Attributes:
        source: the file or configuration field that sets them aside.
    """

    def __init__(self, source: str, why: str) -> None:
        super().__init__(why)
        self.source = source


class SubordinateIds(Struct, frozen=True):
    """First id and number of the ids of a user, and the file that contains them."""

    first: int
    count: int
    source: str


class UserNamespaceRanges(Component):
    """Assigns, remembers and releases the ranges of the pods of a node."""

    # ``{root}/pods``; a record there that cannot be read makes its pod's range unknown.
    pods_dir: Path
    # Names of the runtime handlers that support user namespaces now; "" is the default one.
    supporting: Callable[[], Collection[str]]
    max_pods: int
    ids_per_pod: int = IDS_PER_POD
    # The ids set aside for pods, or None for those after the node's own. UnusableIds is raised if
    # pods can't have ranges of them.
    owned: SubordinateIds | None = None

    def __post_init__(self) -> None:
        owned, length = self.owned, self.ids_per_pod
        if owned is None:
            source = f"userNamespaces.idsPerPod {length} with maxPods {self.max_pods}"
            owned = SubordinateIds(length, length * self.max_pods, source)
        _check_owned(owned, length)
        self._ranges = range(owned.first, owned.first + owned.count - length + 1, length)
        self._used: dict[str, UserNamespaceRange] = {}
        self._unknown: set[str] = set()
        for file in self.pods_dir.glob(f"*/{FILE}"):
            self._remember(file)

    def _remember(self, file: Path) -> None:
        uid = file.parent.name
        try:
            found = _read_range(file)
        except UserNamespaceError as error:
            self._unknown.add(uid)
            log.warning("user namespace of a pod is not known", extra={"why": str(error)})
            return
        twins = {other for other, used in self._used.items() if _overlap(found, used)}
        self._used[uid] = found
        if twins:
            # one of the records is wrong, and nothing shows which
            self._unknown |= {uid, *twins}
            log.warning(
                "two pods have the same user namespace by their records",
                extra={"uid": uid, "others": sorted(twins)},
            )

    @property
    def unknown(self) -> frozenset[str]:
        """uids of pods whose record can't be trusted: query the runtime, and :meth:`settle`."""
        return frozenset(self._unknown)

    def settle(self, uid: str, found: UserNamespaceRange | None) -> None:
        """Take the range a pod really has, from the runtime; None: it has nothing of the pod.

        A range beyond the last id that kernels map is one that no process ever had: the pod gets
        another one. Never raises: what can't be settled stays unknown.
        """
        try:
            if found is None or found.first_host_id + found.length - 1 > LAST_ID:
                (self.pods_dir / uid / FILE).unlink(missing_ok=True)
                self._used.pop(uid, None)
            else:
                self._write(uid, _sound(found))
                self._used[uid] = found
        except (OSError, ValueError) as error:
            log.warning(
                "user namespace of a pod stays unknown", extra={"uid": uid, "why": str(error)}
            )
            return
        self._unknown.discard(uid)

    def pod_range(self, pod: Pod) -> UserNamespaceRange | None:
        """The pod's range, chosen at the first call; None for a pod without its own user namespace.

        Raises:
            UserNamespaceError: it can't have one.
        """
        if not requests_user_namespace(pod):
            return None
        if not self.supporting():
            raise _unsupported("")
        if pod.uid in self._unknown:
            file = self.pods_dir / pod.uid / FILE
            raise UserNamespaceError(f"the record of the pod's user namespace is broken: {file}")
        return self._used.get(pod.uid) or self._choose(pod)

    def checked(self, handler: Callable[[Pod], Awaitable[str]]) -> Callable[[Pod], Awaitable[str]]:
        """A lookup of runtime handlers that refuses one without the features that the pod needs."""

        async def lookup(pod: Pod) -> str:
            name = await handler(pod)
            if requests_user_namespace(pod) and name not in self.supporting():
                raise _unsupported(name)
            return name

        return lookup

    def release_others(self, uids: Collection[str]) -> None:
        """Give back the ranges of all other pods."""
        for uid in self._unknown.union(self._used).difference(uids):
            try:
                (self.pods_dir / uid / FILE).unlink(missing_ok=True)
            except OSError as error:
                # while the file exists the range counts as given
                log.warning(
                    "the user namespace of a removed pod could not be released",
                    extra={"uid": uid, "why": str(error)},
                )
                continue
            self._used.pop(uid, None)
            self._unknown.discard(uid)

    def _choose(self, pod: Pod) -> UserNamespaceRange:
        if self._unknown:
            raise UserNamespaceError(
                "no user namespace is given out while it is not known which one each of these pods "
                f"has: {', '.join(sorted(self._unknown)[:MAX_NAMED])}; their records are broken"
            )
        taken = self._used.values()
        candidates = (UserNamespaceRange(first, self.ids_per_pod) for first in self._ranges)
        chosen = next((c for c in candidates if not any(_overlap(c, t) for t in taken)), None)
        if chosen is None:
            raise UserNamespaceError("could not find an empty slot to allocate a user namespace")
        try:
            self._write(pod.uid, chosen)
        except OSError as error:
            raise UserNamespaceError(f"create user namespace: {error}") from error
        self._used[pod.uid] = chosen
        return chosen

    def _write(self, uid: str, chosen: UserNamespaceRange) -> None:
        mapping = [{"hostId": chosen.first_host_id, "containerId": 0, "length": chosen.length}]
        text = json.dumps({"uidMappings": mapping, "gidMappings": mapping})
        write_private(self.pods_dir / uid / FILE, text)


def _read_range(file: Path) -> UserNamespaceRange:
    try:
        with file.open() as opened:
            found = json.loads(opened.read(MAX_FILE))
        (uids,), (gids,) = found["uidMappings"], found["gidMappings"]
        if uids != gids or uids["containerId"] != 0:
            raise ValueError("user and group ranges differ, or id 0 is not mapped")
        return _sound(UserNamespaceRange(uids["hostId"], uids["length"]))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserNamespaceError(f"{file}: {error!r}") from error


def _sound(found: UserNamespaceRange) -> UserNamespaceRange:
    """The range, if a pod can have it. Raises ValueError.

    A range that this node would not choose today is a pod's anyway: settings change.
    """
    first, length = found.first_host_id, found.length
    whole = _is_units(first) and _is_units(length)
    if not whole or first < UNIT or length < UNIT or first + length - 1 > LAST_ID:
        raise ValueError(f"not a range that a node gives to pods: {first}, {length} ids")
    return found


def _is_units(number: Any) -> bool:
    return isinstance(number, int) and number % UNIT == 0


def _overlap(one: UserNamespaceRange, other: UserNamespaceRange) -> bool:
    return (
        one.first_host_id < other.first_host_id + other.length
        and other.first_host_id < one.first_host_id + one.length
    )


def subordinate_ids(files: Collection[Path] = SUBORDINATE_IDS) -> SubordinateIds | None:
    """The subordinate ids of the user ``kubelet``; None where it has none.

    Raises:
        UnusableIds: it has some in one file only, or several ranges, or others for groups than for
            users. The pods would share the ids that this machine's owner set aside for others.
    """
    found = {}
    for file in files:
        try:
            text = file.read_text(errors="replace")
        except FileNotFoundError:
            text = ""
        except OSError as error:
            raise UnusableIds(str(file), f"can't be read: {error.strerror or error}") from error
        owned = [line for line in lines(text) if line.startswith(f"{OWNER}:")]
        if len(owned) > 1:
            raise UnusableIds(str(file), f"must have one line of the user {OWNER}, not several")
        found[file] = owned[0] if owned else ""
    if not any(found.values()):
        return None
    if len(set(found.values())) != 1:
        reported = "; ".join(f"{file} has {line or 'none'!r}" for file, line in found.items())
        raise UnusableIds(
            " and ".join(map(str, found)), f"must have the same ids of the user {OWNER}: {reported}"
        )
    source, line = next(iter(found.items()))
    numbers = [number(part) for part in line.split(":")[1:]]
    if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
        raise UnusableIds(str(source), f"must be {OWNER}:FIRST:COUNT, not {line[:MAX_LINE]!r}")
    return SubordinateIds(numbers[0], numbers[1], str(source))


def _check_owned(owned: SubordinateIds, ids_per_pod: int) -> None:
    """Raise UnusableIds if pods can't have ranges of these ids."""
    first, count = owned.first, owned.count
    why = ""
    if ids_per_pod < UNIT or not _is_units(ids_per_pod):
        why = f"a pod can't have {ids_per_pod} ids, only multiples of {UNIT}"
    elif first < ids_per_pod or not _is_units(first):
        why = f"the first id must be a multiple of {UNIT} and at least {ids_per_pod}"
    elif count < ids_per_pod or count % ids_per_pod:
        why = f"the number of ids must be a multiple of {ids_per_pod}, what each pod gets"
    elif first + count - 1 > LAST_ID:
        why = f"the last id that a kernel maps is {LAST_ID}; set fewer ids aside"
    if why:
        raise UnusableIds(owned.source, f"{count} ids from {first} on: {why}")


def _unsupported(handler: str) -> UserNamespaceError:
    who = f'RuntimeClass handler "{handler}"' if handler else "runtime"
    return UserNamespaceError(
        f"can't set `spec.hostUsers: false`, {who} does not support user namespaces",
        Cause(CauseKind.USER_NAMESPACE),
    )


async def settle_unknown_ranges(namespaces: UserNamespaceRanges, runtime: RuntimeService) -> None:
    """Settle the ranges of pods whose records are broken, from the sandboxes of the runtime.

    A range stays unknown if the runtime does not report it.
    """
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
    """Return the range of a pod's newest sandbox, preferably a ready one, or None without one."""
    newest = max(sandboxes, key=lambda s: (s.state == cri.SANDBOX_READY, *sandbox_rank(s)))
    users = newest.linux.namespaces.options.userns_options
    if users.mode != cri.POD or len(users.uids) != 1 or list(users.uids) != list(users.gids):
        return None
    (mapping,) = users.uids
    if mapping.container_id != 0:
        return None
    return UserNamespaceRange(mapping.host_id, mapping.length)
