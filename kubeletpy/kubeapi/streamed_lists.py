"""Lists that come over a watch: one request instead of a LIST and a WATCH. Pure.

The watch begins with an ADDED event for each object. A bookmark with an annotation marks that all
have been sent, and at which version; what follows are changes. Servers that can't do so are listed.

Source: docs/reference/api-server.md, ad; the Kubernetes API concepts, "Streaming lists".
"""

from __future__ import annotations

from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.errors import ApiError, Unavailable

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
        news = self.expected(now)
        self._refused_until = now + TRY_AGAIN_S
        return news


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
        """Those that exist."""
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
