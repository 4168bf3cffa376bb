"""The state of watches: which fail, which lists come over one, which objects may have one. Pure.

Each reflector reports its failures here, so that `kubeletpy explain` can name a watch whose failure
would otherwise be one line in the log. The load of connections and the interface for counting
requests stand beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Protocol

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Component, Struct, replace
from kubeletpy.kubeapi.errors import ApiError, Unavailable

FAILURES = 2
"""In a row, from which on a watch is reported: one failure is ordinary."""
LASTING_S = 10.0
"""A watch that fails within this time after the server has accepted it still fails in the same
row."""
_REQUEST = re.compile(r"^[A-Z]{3,10} \S{1,1000}: ")
"""How the message of a request without an answer begins."""


class FailingWatch(Struct, frozen=True):
    """A watch that has failed several times in a row.

    Attributes:
        plural: the resource in paths, for example ``services``.
        namespace: of the watched object or collection; empty for all.
        name: of the watched object; empty for a collection.
        why: the message of the latest failure.
        since: of the first failure in the row, on the event loop's clock.
        failures: in the row.
    """

    plural: str
    namespace: str
    name: str
    why: str
    since: float
    failures: int = 1

    @property
    def reason(self) -> str:
        """The message without the request or the watch, so that equal reasons are equal texts."""
        return _REQUEST.sub("", self.why.removeprefix(f"watch of {self.plural}: "))

    @property
    def of_services(self) -> bool:
        """Whether it is the watch of the cluster's services."""
        return self.plural == "services"

    @property
    def target(self) -> str:
        """The watched object or collection: ``services`` or ``secrets default/token``."""
        name = f"{self.namespace}/{self.name}" if self.namespace and self.name else self.name
        if name:
            return f"{self.plural} {name}"
        return f"{self.plural} in namespace {self.namespace}" if self.namespace else self.plural


class FailingWatches:
    """The failures of the watches of one API; a watch is whatever its reflector passes as key."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, FailingWatch] = {}
        self._accepted: dict[Hashable, float] = {}

    def failed(self, watch: Hashable, found: FailingWatch) -> None:
        """Note a failure; ``found.since`` is its time."""
        before, accepted = self._rows.get(watch), self._accepted.pop(watch, None)
        if before is not None and (accepted is None or found.since - accepted < LASTING_S):
            found = replace(found, since=before.since, failures=before.failures + 1)
        self._rows[watch] = found

    def accepted(self, watch: Hashable, now: float) -> None:
        """The server has accepted a watch that had failed."""
        if watch in self._rows:
            self._accepted[watch] = now

    def ended(self, watch: Hashable) -> None:
        """A watch is no longer needed."""
        self._rows.pop(watch, None)
        self._accepted.pop(watch, None)

    def of_objects(self, keys: Collection[tuple[str, str, str]]) -> Sequence[FailingWatch]:
        """Those that fail now, of certain objects: plural, namespace and name of each."""
        return [row for row in self.now() if (row.plural, row.namespace, row.name) in keys]

    def now(self) -> Sequence[FailingWatch]:
        """Those that fail now, the longest first."""
        found = [
            row
            for watch, row in self._rows.items()
            if row.failures >= FAILURES and watch not in self._accepted
        ]
        return sorted(found, key=lambda row: (row.since, row.target))


# Streamed lists: one request instead of a LIST and a WATCH. The watch begins with an ADDED event
# for each object. A bookmark with an annotation marks that all have been sent, and at which
# version; changes follow. Servers that can't do so are listed.
# Source: docs/reference/api-server.md, ad; the Kubernetes API concepts, "Streaming lists".

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
SILENCE_S = 30.0
"""Without any event before the list's end; as long as a LIST may take."""
TRY_AGAIN_S = 600.0
"""How long lists are not streamed after a refusal: the server may have been upgraded since."""
_REFUSALS = frozenset({400, 405, 406, 415, 422, 501})
_LISTED_INSTEAD = _REFUSALS | {500}
"""A server whose storage can't do so answers 500, as for much else: that is not remembered."""


class Unstreamed(ApiError):
    """The server accepted the watch, then was silent without a word that the list is complete."""


def list_instead(error: ApiError) -> bool:
    """Whether a LIST may work where a streamed list got this answer."""
    return isinstance(error, Unstreamed) or error.code in _LISTED_INSTEAD


class StreamedLists:
    """Whether a server streams lists: what one watch finds out holds for all others."""

    def __init__(self) -> None:
        self._refused_until = float("-inf")

    def expected(self, now: float) -> bool:
        """Whether to request one."""
        return now >= self._refused_until

    def refused(self, error: ApiError, now: float) -> bool:
        """Take a failure into account; returns whether that is news."""
        if not isinstance(error, Unstreamed) and error.code not in _REFUSALS:
            return False
        changes = self.expected(now)
        self._refused_until = now + TRY_AGAIN_S
        return changes


class InitialEvents:
    """The objects of a streamed list, until it is complete.

    Attributes:
        version: the list's resourceVersion; empty before its end.
    """

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], JSON] = {}
        self.version = ""

    @property
    def objects(self) -> list[JSON]:
        """The objects that exist now."""
        return list(self._objects.values())

    def add_event(self, kind: str, obj: JSON) -> bool:
        """Add a bookmark, or an event of an object that has a name; returns whether that was all.

        Raises:
            Unavailable: the list ends without a version.
        """
        metadata = obj.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        if kind != "BOOKMARK":
            key = (str(metadata.get("namespace") or ""), metadata["name"])
            if kind == "DELETED":
                self._objects.pop(key, None)
            else:
                self._objects[key] = obj
            return False
        annotations = metadata.get("annotations")
        if not isinstance(annotations, dict) or annotations.get(INITIAL_EVENTS_END) != "true":
            return False
        version = metadata.get("resourceVersion")
        if not isinstance(version, str) or not version:
            raise Unavailable("the server ended its initial events without a resourceVersion")
        self.version = version
        return True


# Limits of watches, per pod and per node. On HTTP/1.1 a watch costs a connection, and so a file
# descriptor, on both sides; on HTTP/2 a stream, of which a server allows 100 or so on a connection.
# Objects without a watch are polled.

MAX_POD_WATCHES = 64
"""Watches on behalf of one pod. A pod of an ordinary cluster uses fewer than ten objects."""
MAX_WATCHES = 1536
"""Watches of a node over HTTP/2: 500 pods with three objects of their own each, and those they
share. Each takes 25 kB of memory. A server that allows few streams may lower it."""
MAX_HTTP1_WATCHES = 512
"""Watches of a node over HTTP/1.1: half of the 1,024 descriptors that a process has by default."""


class WatchSlots(Component):
    """Counts watches; a watch that several pods share counts for one of them."""

    pod: int = MAX_POD_WATCHES

    def __post_init__(self) -> None:
        self._holders: dict[Hashable, str] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many are taken."""
        return len(self._holders)

    def __contains__(self, watch: Hashable) -> bool:
        return watch in self._holders

    def acquire(self, watch: Hashable, uids: Iterable[str], node: int = MAX_WATCHES) -> bool:
        """Take a slot for a watch, on behalf of one of the pods; returns whether it has one.

        Args:
            node: how many the node may have now.
        """
        if watch in self._holders:
            return True
        if len(self._holders) >= node:
            return False
        uid = next((uid for uid in uids if self._counts[uid] < self.pod), None)
        if uid is None:
            return False
        self._assign(watch, uid)
        return True

    def pass_on(self, watch: Hashable, uid: str, others: Iterable[str]) -> None:
        """A pod no longer needs a watch; the first of the others gets it, whatever else it has."""
        if self._holders.get(watch) == uid:
            self.give_back(watch)
            other = next(iter(others), None)
            if other is not None:
                self._assign(watch, other)

    def give_back(self, watch: Hashable) -> None:
        """A watch is over."""
        uid = self._holders.pop(watch, None)
        if uid is not None:
            self._counts[uid] -= 1
            if not self._counts[uid]:
                del self._counts[uid]

    def _assign(self, watch: Hashable, uid: str) -> None:
        self._holders[watch] = uid
        self._counts[uid] += 1


# Load of the connections to an API server, and how the last one was lost.

HTTP1, HTTP2 = "HTTP/1.1", "HTTP/2"


class Usage(Struct, frozen=True):
    """Connections to one server. Times are on the event loop's clock.

    Attributes:
        protocols: open connections by protocol; of HTTP/1.1 those with a request.
        streams: requests and watches under way.
        watches: how many of these are watches.
        since: when the oldest HTTP/2 connection was opened.
        lost: HTTP/2 connections that broke or that the server ended, since the start.
        lost_at: when the last one was.
        lost_why: and why.
    """

    protocols: dict[str, int]
    streams: int = 0
    watches: int = 0
    since: float | None = None
    lost: int = 0
    lost_at: float | None = None
    lost_why: str = ""


def together(found: Sequence[Usage]) -> Usage:
    """The sum of several transports to one server; losses are left to :class:`Losses`."""
    protocols: Counter[str] = Counter()
    for each in found:
        protocols.update(each.protocols)
    return Usage(
        dict(protocols),
        sum(each.streams for each in found),
        sum(each.watches for each in found),
        min((each.since for each in found if each.since is not None), default=None),
    )


class Losses(Component):
    """Counts connections that were lost, and remembers the last."""

    on_loss: Callable[[], None] = lambda: None
    """Called at each."""

    def __post_init__(self) -> None:
        self._count = 0
        self._at: float | None = None
        self._why = ""

    def note(self, why: str, now: float) -> None:
        """A connection was lost."""
        self._count, self._at, self._why = self._count + 1, now, why
        self.on_loss()

    def added_to(self, usage: Usage) -> Usage:
        """The same usage, with the losses."""
        return replace(usage, lost=self._count, lost_at=self._at, lost_why=self._why)


# Counting of requests. No metrics library is imported here, and no path is passed.


class RequestObserver(Protocol):
    """``method`` is the HTTP method, ``host`` the API server's host and port."""

    def tried(
        self, code: int | None, method: str, host: str, seconds: float, sent: int, *, again: bool
    ) -> None:
        """An attempt ended with an HTTP code, or None when there was no response.

        rest_client_requests_total, _request_duration_seconds, _request_size_bytes (``sent``), and
        _request_retries_total if it was not the first attempt of its request (``again``).
        """
        return

    def held_back(self, method: str, host: str, seconds: float) -> None:
        """rest_client_rate_limiter_duration_seconds: how long an attempt waited; may be 0."""
        return

    def answered(self, method: str, host: str, received: int) -> None:
        """rest_client_response_size_bytes: the length of a response; a watch has none."""
        return

    def connection_lost(self) -> None:
        """kubeletpy_api_connections_lost_total: HTTP/2, broken or ended by the server."""
        return


class NoObserver(RequestObserver):
    """Counts no requests; for clients without metrics."""
