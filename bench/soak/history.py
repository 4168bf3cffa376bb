"""Whether what the API showed about pods can be true. Pure: times are arguments.

- restartCount never falls, and what never ends by itself is not restarted once it has run;
- a pod that has ended never runs again;
- exit codes are those that the container's script can return, and none is lost;
- no pod is Terminating for longer than its grace period and TERMINATING_SLACK while all is well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.soak.pods import CODES, KILLED, STEADY
from kubeletpy.base.api.types import JSON

TERMINATING_SLACK = 15.0
_TERMINAL = ("Succeeded", "Failed")
_NEVER_RAN = ("StartError", "ContainerCannotRun", "ContainerCreateFailed")
"""The runtime was killed while it started the container."""
_LOST = (255, "Unknown")
"""containerd's record of a container whose shim had ended by the time it was started again."""
_LISTS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


@dataclass(slots=True)
class _Seen:
    name: str
    restarts: dict[str, int] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)
    """Containers that were ever shown running."""
    runs: set[str] = field(default_factory=set)
    """Containers that were shown running when the pod was last seen."""
    ended: str = ""
    terminating_since: float | None = None
    grace: float = 0.0
    due: str = ""
    """Its deletionTimestamp."""
    told_slow: bool = False


class History:
    """Checks each change of each pod object, by uid."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self.violations: list[str] = []
        self.pods = 0
        self.restarts = 0
        self.exits: set[str] = set()
        """Ids of the containers that were shown as terminated."""

    def take(self, kind: str, obj: JSON, healthy: float) -> None:
        """One event of a watch; ``healthy``: seconds without faults so far."""
        meta = obj["metadata"]
        seen = self._seen.get(meta["uid"])
        if seen is None:
            seen = self._seen[meta["uid"]] = _Seen(meta["name"])
            self.pods += 1
        status = obj.get("status") or {}
        notes = meta.get("annotations") or {}
        self._terminating(seen, meta, healthy, last=kind == "DELETED")
        for key in _LISTS:
            for entry in status.get(key) or ():
                self._count(seen, entry, notes, bool(meta.get("deletionTimestamp")))
                self._codes(seen, entry, notes, meta)
                self._runs(seen, entry)
        self._phase(seen, status)
        if kind == "DELETED":
            del self._seen[meta["uid"]]

    def overdue(self, healthy: float) -> None:
        """Check the pods that are still Terminating."""
        for seen in self._seen.values():
            self._slow(seen, healthy)

    def _terminating(self, seen: _Seen, meta: JSON, healthy: float, *, last: bool) -> None:
        if not meta.get("deletionTimestamp"):
            return
        if seen.terminating_since is None:
            seen.terminating_since = healthy
        # the agent's own final deletion has a grace period of 0 and moves the timestamp back
        if not (last and seen.due):
            seen.due = meta["deletionTimestamp"]
            seen.grace = float(meta.get("deletionGracePeriodSeconds") or 0)
        self._slow(seen, healthy)

    def _slow(self, seen: _Seen, healthy: float) -> None:
        if seen.terminating_since is None or seen.told_slow:
            return
        took = healthy - seen.terminating_since
        if took > seen.grace + TERMINATING_SLACK:
            seen.told_slow = True
            since = f"it should have been removed at {seen.due}"
            text = f"Terminating for {took:.0f} s, grace {seen.grace:g} s: {since}"
            self._violated(seen, text)

    def _count(self, seen: _Seen, entry: JSON, notes: JSON, terminating: bool) -> None:
        name, count = entry["name"], int(entry.get("restartCount") or 0)
        before = seen.restarts.get(name, 0)
        if count < before:
            self._violated(seen, f"restartCount of {name} fell: {before} -> {count}")
        if count > before:
            self.restarts += count - before
            if notes.get(STEADY) == "true" and name in seen.ran and not terminating:
                last = (entry.get("lastState") or {}).get("terminated")
                self._violated(seen, f"{name} restarted, which never ends by itself: {last}")
        seen.restarts[name] = count

    def _runs(self, seen: _Seen, entry: JSON) -> None:
        if "running" in (entry.get("state") or {}):
            seen.ran.add(entry["name"])
            seen.runs.add(entry["name"])
        else:
            seen.runs.discard(entry["name"])

    def _codes(self, seen: _Seen, entry: JSON, notes: JSON, meta: JSON) -> None:
        may: dict[str, list[int]] = json.loads(notes.get(CODES) or "{}")
        allowed = may.get(entry["name"])
        for which in ("state", "lastState"):
            ended = (entry.get(which) or {}).get("terminated")
            if ended is None or ended.get("containerID") in self.exits:
                continue
            if ended.get("containerID"):
                self.exits.add(ended["containerID"])
            code = ended.get("exitCode", 0)
            if ended.get("reason") == "ContainerStatusUnknown":
                # a container is also shown like this if it was deleted while it waited to start,
                # or before its start was confirmed
                if entry["name"] in seen.runs or which == "lastState":
                    self._violated(seen, f"the exit of {entry['name']} was lost: {ended}")
            elif ended.get("reason") in _NEVER_RAN or (code, ended.get("reason")) == _LOST:
                continue
            elif allowed is not None and code not in allowed and not _cut_short(code, meta):
                reported = {key: ended[key] for key in ended if key != "message"}
                self._violated(seen, f"{entry['name']} cannot end so: {reported}")

    def _phase(self, seen: _Seen, status: JSON) -> None:
        phase = status.get("phase")
        if seen.ended and phase != seen.ended:
            self._violated(seen, f"was {seen.ended} and is {phase}")
        if phase in _TERMINAL:
            seen.ended = phase
            runs = [
                entry["name"]
                for key in _LISTS
                for entry in status.get(key) or ()
                if "running" in (entry.get("state") or {})
            ]
            if runs:
                self._violated(seen, f"is {phase}, but {runs} run")

    def _violated(self, seen: _Seen, what: str) -> None:
        if (text := f"pod {seen.name}: {what}") not in self.violations:
            self.violations.append(text)


def exits_shown(obj: JSON) -> Iterator[tuple[str, int]]:
    """Id and exit code of each container of a pod that is shown as terminated."""
    for key in _LISTS:
        for entry in (obj.get("status") or {}).get(key) or ():
            for which in ("state", "lastState"):
                ended = (entry.get(which) or {}).get("terminated") or {}
                if ended.get("containerID"):
                    yield str(ended["containerID"]).rpartition("//")[2], ended.get("exitCode", 0)


def _cut_short(code: int, meta: JSON) -> bool:
    """Killed during deletion: the grace period has ended, or its shell had no trap yet."""
    return code in (KILLED, 143) and bool(meta.get("deletionTimestamp"))
