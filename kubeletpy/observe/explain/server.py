"""Serves explanations and plans of pods to root on this machine: JSON over HTTP on a socket.

Read-only. The socket belongs to root alone (mode 0600). Still, no client can hold more than a few
connections for more than a few seconds, or make the agent store anything for it. The explaining
code is loaded on the first request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import stat
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import to_builtins

from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.base.structs import Component, replace
from kubeletpy.base.wire.listener import BACKLOG, ConnectionLimiter
from kubeletpy.config import Notice
from kubeletpy.kubeapi.events.writer import KeptEvent
from kubeletpy.metrics.trace.model import PodTrace
from kubeletpy.metrics.trace.spans import Traces
from kubeletpy.observe.explain.snapshot import Snapshots
from kubeletpy.pods.pod_manager import static_name
from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus

if TYPE_CHECKING:
    from kubeletpy.base.wire.http_server import HttpServer
    from kubeletpy.observe.explain.facts import PodFacts


log = logging.getLogger(__name__)

SOCKET_NAME = "explain.sock"
MAX_CONNECTIONS = 32
"""Nobody authenticates here, so that half as many are open at once: the oldest is closed then."""
MAX_LIFE_S = 10.0
"""Seconds after which a connection is closed."""
MAX_PLAN_BYTES = 3 * 2**20
"""Maximum size of a manifest or patch: more than any API server stores."""
MAX_PATH = 107
"""Bytes: the kernel's maximum for a socket path."""


ReadEnd = Callable[[ContainerStatus], str]
"""Reads some text at the end of the log of a run. Blocks on the file; raises OSError."""
Elsewhere = Callable[[str, str], Awaitable["Mapping[str, Any] | None"]]
"""Returns a pod's object in the API, or None. Raises LookupError: why it could not be read."""
Foresee = Callable[[dict[str, Any]], Awaitable[Any]]
"""Predicts what the node would do with a pod, as a Struct. Raises ValueError for a bad request."""
Evictions = Callable[[], Awaitable[Sequence[Any]]]
"""Returns the current eviction orders (:class:`kubeletpy.node.eviction.report.EvictionOrder`)."""
Usage = Callable[[], Awaitable[dict[str, Any]]]
"""Returns CPU and memory of the running containers (:func:`kubeletpy.node.stats.scrapes.brief`)."""


class ExplainServer(Component):
    """Serves explanations of the node and its pods.

    Its paths are /node, /evictions, /usage, /pods, /pods/NAMESPACE/NAME with /timeline, /events
    and /logs below it, and POST /plan.

    Attributes:
        code: the modules that ``serve`` needs besides those that are loaded with this one.
    """

    code: ClassVar[Sequence[str]] = ("aiohttp.web", "kubeletpy.base.wire.http_server")

    path: Path
    """The path of the socket."""
    snapshots: Snapshots
    traces: Traces
    """The spans of pods, for their timelines."""
    pressure: Callable[[], dict[str, Any] | None] = lambda: None
    """The node's pressure as far as known; None if it is not monitored."""
    notices: Sequence[Notice] = ()
    """Settings that have no effect."""
    by_limit: Callable[[str], dict[str, Any] | None] = lambda uid: None
    """How a pod was evicted for exceeding its own limit; None if it was not."""
    troubles: Callable[[], Sequence[str]] = tuple
    """The parts of the agent that do not work now, and why."""
    foresee: Foresee | None = None
    evictions: Evictions | None = None
    """None if no pod is ever evicted."""
    removed: Callable[[str, str], tuple[PodFacts, float] | None] = lambda namespace, name: None
    """The last facts of a removed pod (by name or uid), and their age in seconds."""
    elsewhere: Elsewhere | None = None
    log_end: ReadEnd | None = None
    """None if no logs are read."""
    node_name: str = ""
    connections: Callable[[], Mapping[str, Any] | None] = lambda: None
    """Those to the API server (:class:`kubeletpy.kubeapi.watch_state.Usage`), with times in Unix
    seconds; None if there is no API."""
    usage: Usage | None = None
    """None if nothing is measured here."""
    events: Callable[[str], Sequence[KeptEvent]] = lambda uid: ()
    """The latest of a pod, by uid."""
    version: Callable[[], Any] = lambda: None
    """The Kubernetes version of the node and where it comes from; None if not known."""

    def __post_init__(self) -> None:
        self._http: HttpServer | None = None

    async def serve(self) -> None:
        """Listen for requests; if that is not possible, log it once and do without."""
        if len(str(self.path).encode()) > MAX_PATH:
            log.warning(
                "no socket for `kubeletpy explain`: its path is too long",
                extra={"path": str(self.path), "at_most": MAX_PATH},
            )
            return
        try:
            await self._listen()
        except OSError as error:
            log.warning(
                "no socket for `kubeletpy explain`",
                extra={"path": str(self.path), "why": str(error)},
            )

    async def _listen(self) -> None:
        from aiohttp import web

        from kubeletpy.base.wire.http_server import HttpServer

        app = web.Application(client_max_size=MAX_PLAN_BYTES)
        pod = "/pods/{namespace}/{name}"
        app.router.add_get("/node", self._node)
        app.router.add_get("/evictions", self._order)
        app.router.add_get("/usage", self._used)
        app.router.add_get("/pods", self._list)
        app.router.add_get(pod, self._one)
        app.router.add_get(f"{pod}/timeline", self._timeline)
        app.router.add_get(f"{pod}/events", self._events_of)
        app.router.add_get(f"{pod}/logs", self._logs)
        if self.foresee is not None:
            app.router.add_post("/plan", self._plan)
        _remove_stale(self.path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # only root may connect: the directory and the default umask keep others out
            # until the mode is set
            with complete_errors(self.path):
                sock.bind(str(self.path))
            self.path.chmod(0o600)
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
        self._http = HttpServer(app, ConnectionLimiter(MAX_CONNECTIONS, MAX_LIFE_S))
        await self._http.start(sock)

    async def close(self) -> None:
        """Stop listening and remove the socket."""
        if self._http is not None:
            await self._http.close()
            self.path.unlink(missing_ok=True)

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods of the node, a line each."""
        from kubeletpy.observe.explain.gather import line

        return [to_builtins(line(self.snapshots.facts(uid))) for uid in self.snapshots.uids()]

    def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return everything about a pod but its log, or None if this node has no such pod."""
        uid = self.snapshots.find(namespace, name)
        return None if uid is None else self._explained(self.snapshots.facts(uid))

    def _explained(self, facts: PodFacts) -> dict[str, Any]:
        from kubeletpy.observe.explain.gather import explain

        uid, found = facts.uid, to_builtins(explain(facts))
        evictions = (self.pressure() or {}).get("evictions") or ()
        evicted = [row for row in evictions if row["pod"] is not None and row["pod"]["uid"] == uid]
        by_limit = None if evicted else self.by_limit(uid)
        return {**found, "eviction": evicted[-1] if evicted else None, "by_limit": by_limit}

    def node(self) -> dict[str, Any]:
        """Return the node's pressure, the parts that do not work, and settings without effect."""
        return {
            "name": self.node_name,
            "pressure": self.pressure(),
            "without_effect": [to_builtins(n) for n in self.notices],
            "troubles": list(self.troubles()),
            "api": self.connections(),
            "version": to_builtins(self.version()),
        }

    async def _list(self, _request: Any) -> Any:
        return _answer(self.pods())

    async def _one(self, request: Any) -> Any:
        namespace, name = _pod_of(request)
        uid = self.snapshots.find(namespace, name)
        if uid is None:
            return _answer(await self._not_here(namespace, name), 404)
        facts = self.snapshots.facts(uid)
        return _answer(self._explained(replace(facts, log_ends=await self._log_ends(facts))))

    async def _log_ends(self, facts: PodFacts) -> dict[str, str]:
        if facts.runtime is None or self.log_end is None:
            return {}
        return await asyncio.to_thread(log_ends, facts.runtime.containers, self.log_end)

    async def _not_here(self, namespace: str, name: str) -> dict[str, Any]:
        """Return why a pod is not here, and its last state or what the API has."""
        from kubeletpy.observe.explain import phrases
        from kubeletpy.observe.explain.gather import explain_removed
        from kubeletpy.observe.explain.texts import duration
        from kubeletpy.observe.explain.unplaced import verdict

        error = f"no pod {namespace}/{name} on this node"
        unknown = ""
        try:
            pod = None if self.elsewhere is None else await self.elsewhere(namespace, name)
        except LookupError as why:
            pod, unknown = None, f" ({why.args[0]})"
        if pod is not None:
            node = (pod.get("spec") or {}).get("nodeName")
            if node and node == self.node_name:
                error = f"this node has not taken up pod {namespace}/{name} yet"
            elif node:
                error += f"; it is on node {node}"
            return {"error": f"{error}: {verdict(pod)}"}
        if (last := self._last_facts(namespace, name)) is None:
            return {"error": error + (self.snapshots.namesakes(name) or unknown)}
        facts, since = last
        why_ended = [one.decision.why for one in facts.history if one.decision.ends_pod]
        because = f" because {why_ended[-1]}{phrases.for_taint(facts)}" if why_ended else ""
        return {
            "error": f"{error} any more: it ended {duration(since)} ago{because}",
            "last": {**to_builtins(explain_removed(facts)), "eviction": None, "by_limit": None},
        }

    def _last_facts(self, namespace: str, name: str) -> tuple[PodFacts, float] | None:
        """Return the last facts about a pod by its name, its uid, or its manifest's name."""
        static = static_name(name, self.node_name)
        return self.removed(namespace, name) or self.removed(namespace, static)

    def _last_trace(self, namespace: str, name: str) -> PodTrace | None:
        """Return the trace of a removed pod by its name, its uid, or its manifest's name."""
        find, static = self.traces.find, static_name(name, self.node_name)
        return find(namespace, name) or self.traces.pod_trace(name) or find(namespace, static)

    async def _node(self, _request: Any) -> Any:
        return _answer(self.node())

    async def _order(self, _request: Any) -> Any:
        found = () if self.evictions is None else await self.evictions()
        return _answer([to_builtins(each) for each in found])

    async def _used(self, _request: Any) -> Any:
        return _answer({"pods": []} if self.usage is None else await self.usage())

    async def _events_of(self, request: Any) -> Any:
        namespace, name = _pod_of(request)
        uid = self.snapshots.find(namespace, name)
        if uid is None:
            trace, last = self._last_trace(namespace, name), self._last_facts(namespace, name)
            uid = trace.uid if trace is not None else last[0].uid if last is not None else ""
        return _answer([to_builtins(event) for event in self.events(uid)])

    async def _logs(self, request: Any) -> Any:
        uid, read = self.snapshots.find(*_pod_of(request)), self.log_end
        runtime = None if uid is None else self.snapshots.facts(uid).runtime
        if runtime is None or read is None:
            return _answer({"containers": {}})
        found = await asyncio.to_thread(log_tails, runtime.containers, read)
        return _answer({"containers": found})

    async def _plan(self, request: Any) -> Any:
        from aiohttp import web

        assert self.foresee is not None, "there is no route without it"
        try:
            body = json.loads(await request.read())
            if not isinstance(body, dict):
                raise ValueError("the request is no object")
            return _answer(to_builtins(await self.foresee(body)))
        except web.HTTPRequestEntityTooLarge:
            return _answer({"error": f"it is larger than {MAX_PLAN_BYTES} bytes"}, 400)
        except (ValueError, RecursionError) as error:
            return _answer({"error": str(error)}, 400)

    async def _timeline(self, request: Any) -> Any:
        from kubeletpy.observe.explain.gather import explain_timeline

        namespace, name = _pod_of(request)
        uid = self.snapshots.find(namespace, name)
        trace = self._last_trace(namespace, name) if uid is None else self.traces.pod_trace(uid)
        now = asyncio.get_running_loop().time()
        if trace is None:
            if uid is None:
                error = f"no timeline for pod {namespace}/{name} on this node"
                return _answer({"error": error + self.snapshots.namesakes(name)}, 404)
            trace = PodTrace(uid, namespace, name, now)
        facts, seen = self.snapshots.facts(trace.uid), self.snapshots.seen_at(trace.uid)
        found = explain_timeline(facts, trace, seen, now)
        return _answer(to_builtins(found if uid is not None else replace(found, verdict="")))


def _pod_of(request: Any) -> tuple[str, str]:
    return request.match_info["namespace"], request.match_info["name"]


def _answer(body: Any, status: int = 200) -> Any:
    from aiohttp import web

    response = web.Response(
        body=json.dumps(body).encode(), status=status, content_type="application/json"
    )
    response.force_close()
    return response


def _remove_stale(path: Path) -> None:
    """Remove the socket of an agent that has exited. Raises OSError if an agent listens there."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(f"{path} exists and is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise FileExistsError("another agent listens there")


# The last lines of containers' logs: one of each that failed; for a page, some of each. They are
# for root only: clients that may see a pod's state need not be allowed to see its logs.

MAX_CONTAINERS = 20
MAX_LINES = 10
"""Lines of one container that are returned for a page."""


def log_ends(records: Sequence[ContainerStatus], read: ReadEnd) -> dict[str, str]:
    """Return container name -> the last line of its latest run, if it failed. Blocks on the files.

    ``records``: the runtime's, of one pod.
    """
    exited = (each for each in records if each.state is ContainerState.EXITED)
    latest = {each.name: each for each in sorted(exited, key=lambda one: one.finished_at)}
    failed = [one for one in latest.values() if one.exit_code]
    return {name: lines[-1] for name, lines in _read(failed, read).items()}


def log_tails(records: Sequence[ContainerStatus], read: ReadEnd) -> dict[str, list[str]]:
    """Return container name -> at most MAX_LINES last lines of its latest run. Blocks on the files.

    Containers without a readable log are left out. ``records``: the runtime's, of one pod.
    """
    latest = {each.name: each for each in sorted(records, key=lambda one: one.rank)}
    return {name: lines[-MAX_LINES:] for name, lines in _read(latest.values(), read).items()}


def _read(records: Iterable[ContainerStatus], read: ReadEnd) -> dict[str, list[str]]:
    """Return container name -> the lines at the end of its log that are not blank, if any."""
    found: dict[str, list[str]] = {}
    for record in [one for one in records if one.log_path][:MAX_CONTAINERS]:
        try:
            text = read(record)
        except OSError:
            continue  # it was removed or rotated, or is no log
        if lines := [line for line in text.splitlines() if line.strip()]:
            found[record.name] = lines
    return found
