"""Which watches of an API keep failing, why and since when. Pure.

Each reflector reports its failures here, so that `kubeletpy explain` can name a watch whose failure
would otherwise be one line in the log.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Sequence

from kubeletpy.base.structs import Struct, replace

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
