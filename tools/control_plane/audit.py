"""The requests of nodes, as the API server's audit log has them."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct

_POLICY: JSON = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:nodes"]}, {"level": "None"}],
}


class Request(Struct, frozen=True):
    """One request of a node that the API server has answered, or begun to.

    Attributes:
        path: without the query.
        resource: such as "pods"; "" for what is none.
        version: the resourceVersion of a watch, "" if it names none.
        lists: the request is a list, or a watch that begins with one.
        ended: the answer was complete; False for the beginning of a watch.
        credential: the identity of the client certificate.
    """

    user: str
    verb: str
    path: str
    resource: str
    name: str
    code: int
    version: str
    lists: bool
    ended: bool
    credential: str


class AuditLog:
    """The audit log of an API server in ``directory``; what :attr:`flags` make it write."""

    def __init__(self, directory: Path) -> None:
        self._file, self._policy = directory / "audit.log", directory / "audit-policy.json"

    def flags(self) -> list[str]:
        """Write the policy; returns the flags of the API server."""
        self._policy.write_text(json.dumps(_POLICY))
        return [f"--audit-policy-file={self._policy}", f"--audit-log-path={self._file}"]

    def length(self) -> int:
        """Current size of the log in bytes, a position for :meth:`requests`."""
        return self._file.stat().st_size if self._file.exists() else 0

    def requests(self, since: int = 0) -> list[Request]:
        """The requests in the log after a position."""
        with self._file.open("rb") as file:
            file.seek(since)
            whole = file.read().rpartition(b"\n")[0]
        return [request_of(json.loads(line)) for line in whole.splitlines()]


def request_of(event: JSON) -> Request:
    """The request of an audit event."""
    uri = urlsplit(event["requestURI"])
    query = parse_qs(uri.query)
    target, user = event.get("objectRef", {}), event["user"]
    identities = user.get("extra", {}).get("authentication.kubernetes.io/credential-id", [""])
    return Request(
        user=user["username"],
        verb=event["verb"],
        path=uri.path,
        resource=target.get("resource", ""),
        name=target.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        version=query.get("resourceVersion", [""])[0],
        lists=event["verb"] == "list" or query.get("sendInitialEvents") == ["true"],
        ended=event["stage"] == "ResponseComplete",
        credential=identities[0],
    )
