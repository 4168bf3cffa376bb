"""A cluster for tests: an API server and nodes whose containers are commands or functions.

Two engines. *real*: etcd, kube-apiserver and what is there of the rest, as processes, because
operators need the complete API. *embedded*: the embedded API in this process, for tests of pods,
nodes and clients. Everything runs on a thread with an event loop of its own, so that tests may be
async or not. Nothing stays: processes end with the program, and the data is in one directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
import secrets
import threading
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextlib import AsyncExitStack, aclosing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from kubeletpy.agent.launch.embed import guest_config
from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import Names
from kubeletpy.base.structs import Struct
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.errors import ApiError, NotFound
from kubeletpy.kubeapi.kubeconfig import read_kubeconfig
from kubeletpy.kubeapi.protocol import (
    EVENTS,
    NODES,
    PODS,
    SERVICEACCOUNTS,
    KubeApi,
    Resource,
    WatchEvent,
)
from kubeletpy.library import NodeAgent
from kubeletpy.library.control_plane import (
    Child,
    ControlPlane,
    Guard,
    Programs,
    consequences,
    find_programs,
    write_kubeconfig,
)
from kubeletpy.library.images import Image, ImageRuntime, Images
from kubeletpy.library.report import namespace_report
from kubeletpy.status.conditions import is_ready
from kubeletpy.volumes.files.disk import mounts_below, unmount

T = TypeVar("T")
NAMESPACES = Resource("", "v1", "namespaces", False, "Namespace")
ENGINES = ("auto", "real", "embedded")
EMBEDDED_LACKS = (
    "The embedded API has no CustomResourceDefinitions, RBAC and controllers of workloads: "
    "the engine 'real' has them (KUBEBUILDER_ASSETS names the directory of its programs)."
)
START_S = 60.0
"""Seconds until all nodes are Ready, after the API serves."""
WAIT_S = 30.0
LOG_LINES = 10
"""Last lines of a container's log in a report."""
_READY = "ready"
"""A file in the directory of a shared control plane that has started."""
_MEMBER = "kubeletpy.local/member"
_NODE_SELECTOR = "scheduler.alpha.kubernetes.io/node-selector"
"""The annotation of a namespace that the admission plugin PodNodeSelector reads."""
_WATCH_S = 300


class ClusterError(Exception):
    """A cluster can't be started, or something a test waits for does not happen.

    Attributes:
        namespace: the one that the text reports.
    """

    def __init__(self, text: str, namespace: str | None = None) -> None:
        super().__init__(text)
        self.namespace = namespace


class Sharing(Struct, frozen=True):
    """A control plane for several programs, whose nodes run only what their program creates.

    The first program that needs it starts it. It ends with the one that listens at ``lifeline``.

    Attributes:
        directory: the same for all programs.
        lifeline: as a :class:`Guard` has it.
        member: the name of this program; the names of its nodes end with it.
    """

    directory: Path
    lifeline: str
    member: str


class Cluster:
    """A running cluster; use it in a ``with``.

    Attributes:
        engine: ``real`` or ``embedded``.
        kubeconfig: of an administrator.
        nodes: the names of the nodes.
        images: what containers run, by the name of their image.
        lacks: what does not happen in this cluster, as sentences.
    """

    def __init__(
        self,
        directory: Path,
        *,
        engine: str = "auto",
        nodes: Sequence[str] = ("node-1",),
        programs: Programs | None = None,
        sharing: Sharing | None = None,
    ) -> None:
        """Nothing happens before :meth:`start`.

        Args:
            directory: for all files; made at the start.
            engine: ``auto`` is ``real`` if there are programs.
            programs: of the control plane; None: as :func:`find_programs` finds them.
            sharing: use one control plane with other programs; the engine must be real then.

        Raises:
            ClusterError: there is no such engine, it has no programs, or it can't be shared.
            ControlPlaneError: a variable names a directory without programs.
        """
        if engine not in ENGINES:
            raise ClusterError(f"engine {engine!r}: must be one of {', '.join(ENGINES)}")
        if programs is None and engine != "embedded":
            home = os.path.expanduser("~")  # noqa: PTH111 - Path.home raises where there is none
            programs = find_programs(os.environ, Path(home))
        if engine == "real" and programs is None:
            raise ClusterError(
                "the engine 'real' needs etcd and kube-apiserver: set KUBEBUILDER_ASSETS to their "
                "directory (`setup-envtest use -p path` prints one)"
            )
        self.engine = "real" if programs is not None and engine != "embedded" else "embedded"
        if sharing is not None and self.engine == "embedded":
            raise ClusterError(
                "the embedded API is part of its program and can't be shared: leave out "
                "--cluster-shared (cluster_shared), or set KUBEBUILDER_ASSETS to the directory of "
                "etcd and kube-apiserver for the engine 'real'"
            )
        self._sharing = sharing
        suffix = f"-{sharing.member}" if sharing else ""
        self.nodes = tuple(f"{name}{suffix}" for name in nodes)
        self.images = Images()
        self.kubeconfig = Path()
        self.lacks: Sequence[str] = ()
        self._directory, self._programs = directory, programs
        self._guard = Guard(directory)
        self._shared_guard: Guard | None = None
        self._abandoned = threading.Event()
        self._starting: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="kubeletpy cluster", daemon=True)
        self._stack = AsyncExitStack()
        self._numbers = itertools.count(1)
        self._agents: dict[str, NodeAgent] = {}
        self._client: KubeClient

    # -- start and end -------------------------------------------------------------------------

    def start(self) -> None:
        """Start the API and the nodes; returns when all nodes are Ready.

        Raises:
            ClusterError, ControlPlaneError, LaunchError: it does not start; nothing of it stays.
        """
        self._thread.start()
        try:
            self._call(self._begin())
        except BaseException:  # also Ctrl-C
            self.stop()
            raise

    def stop(self) -> None:
        """End everything; may be called again. The directory stays."""
        if not self._thread.is_alive():
            return
        self._abandoned.set()
        try:
            self._call(self._end())
            for target in mounts_below(str(self._directory)):  # of claims of root's nodes
                unmount(target)
        finally:
            self._guard.stop()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._submit(work).result()

    async def _begin(self) -> None:
        self._starting = asyncio.create_task(self._start())
        await self._starting

    async def _end(self) -> None:
        await cancel_tasks((self._starting,))
        await self._stack.aclose()

    async def _start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._guard.start()
        if self._programs is not None and self.engine == "real":
            node_kubeconfigs = self._start_real(self._programs)
        else:
            node_kubeconfigs = await self._start_embedded()
        self._client = await KubeClient.from_kubeconfig(str(self.kubeconfig))
        self._stack.push_async_callback(self._client.close)
        if self.engine == "real" and self._programs and self._programs.scheduler is None:
            binder = asyncio.create_task(_bind_in_turn(self._client, self.nodes, self._selector))
            self._stack.callback(binder.cancel)
        if self._sharing is not None:
            self._stack.push_async_callback(self._remove_nodes)
        for name, kubeconfig in zip(self.nodes, node_kubeconfigs, strict=True):
            self._agents[name] = await self._start_node(name, kubeconfig)
        for agent in self._agents.values():
            await agent.registered(START_S)
        for name in self.nodes:
            await self._until(NODES, name, None, _shows_ready, START_S)
        await self._until_pods_are_admitted("default")

    @property
    def _is_alone(self) -> bool:
        """Whether a real API server runs without the controller manager."""
        programs = self._programs if self.engine == "real" else None
        return programs is not None and programs.controller_manager is None

    @property
    def _flags(self) -> list[str]:
        # nobody makes the service accounts of namespaces
        return ["--disable-admission-plugins=ServiceAccount"] if self._is_alone else []

    @property
    def _selector(self) -> Mapping[str, str]:
        """The labels of this program's nodes, and the selector of its pods."""
        return {_MEMBER: self._sharing.member} if self._sharing is not None else {}

    def _start_real(self, programs: Programs) -> list[Path]:
        if self._sharing is None:
            directory = self._directory / "control-plane"
            plane = self._control_plane(programs, directory, self._guard)
            self._stack.callback(plane.stop)
            plane.start(flags=self._flags)
        else:
            directory = self._shared_plane(programs, self._sharing)
        self.kubeconfig = directory / "pki" / "admin.kubeconfig"
        self.lacks = tuple(consequences(programs))
        url = read_kubeconfig(self.kubeconfig).cluster["server"]
        return [_node_kubeconfig(directory, url, name) for name in self.nodes]

    def _control_plane(self, programs: Programs, directory: Path, guard: Guard) -> ControlPlane:
        child = partial(Child, environment=guard.environment)
        return ControlPlane(directory, programs, background=child, abandoned=self._abandoned)

    def _shared_plane(self, programs: Programs, sharing: Sharing) -> Path:
        """The directory of the control plane of all programs, which the first one starts."""
        sharing.directory.mkdir(parents=True, exist_ok=True)
        with _locked(sharing.directory, self._abandoned):
            for ready in sharing.directory.glob(f"cluster-*/{_READY}"):
                return ready.parent
            directory = sharing.directory / f"cluster-{sharing.member}"
            self._shared_guard = Guard(directory, sharing.lifeline)
            self._shared_guard.start()
            plane = self._control_plane(programs, directory, self._shared_guard)
            try:
                plane.start(flags=[*self._flags, "--enable-admission-plugins=PodNodeSelector"])
            except BaseException:
                plane.stop()
                raise
            (directory / _READY).touch()
            return directory

    async def _remove_nodes(self) -> None:
        """Remove nodes that have ended, so that pods of other programs do not get there."""
        for name in self.nodes:
            with contextlib.suppress(ApiError):  # the control plane may have ended already
                await self._client.delete(NODES, name)

    async def _start_embedded(self) -> list[Path]:
        try:
            from kubeletpy_up.api import LocalApi
        except ImportError:
            raise ClusterError(
                "the engine 'embedded' needs the package kubeletpy-up, as in kubeletpy[pytest]"
            ) from None
        directory = self._directory / "api"
        local = LocalApi(
            directory, self.nodes[0], port=0, service_account_volumes=True, node_metrics=False
        )
        endpoint = await local.start()
        self._stack.push_async_callback(local.stop)
        self.kubeconfig, self.lacks = endpoint.admin_kubeconfig, (EMBEDDED_LACKS,)
        others = [_node_kubeconfig(directory, endpoint.url, name) for name in self.nodes[1:]]
        return [endpoint.node_kubeconfig, *others]

    async def _start_node(self, name: str, kubeconfig: Path) -> NodeAgent:
        runtime = ImageRuntime(self.images, self._guard.environment)
        root = self._directory / "nodes" / name
        flags = [f"--node-labels={label}={value}" for label, value in self._selector.items()]
        config = guest_config(root, name, kubeconfig=kubeconfig, server=True, flags=flags)
        self._stack.push_async_callback(runtime.close)
        return await self._stack.enter_async_context(
            NodeAgent(config, runtime=runtime, images=runtime, mounts=False)
        )

    # -- what tests use ------------------------------------------------------------------------

    def image(self, name: str, run: Image) -> None:
        """Name an image: a command to which the container's own is appended, or a function."""
        self.images[name] = run

    @contextmanager
    def namespace(self, name: str = "") -> Iterator[str]:
        """A namespace of its own, which is deleted with its pods at the end."""
        name = name or f"test-{next(self._numbers)}-{secrets.token_hex(3)}"
        self._call(self._new_namespace(name))
        try:
            yield name
        finally:
            with contextlib.suppress(NotFound):
                self._call(self._end_namespace(name))

    async def _new_namespace(self, name: str) -> None:
        selector = ",".join(f"{label}={value}" for label, value in self._selector.items())
        annotations = {_NODE_SELECTOR: selector} if selector else {}
        metadata = {"name": name, "annotations": annotations}
        await self._client.create(NAMESPACES, {"metadata": metadata})
        await self._until_pods_are_admitted(name)

    async def _until_pods_are_admitted(self, namespace: str) -> None:
        """Wait until the controller manager has made the service account of a namespace."""
        if not self._is_alone:
            await self._until(SERVICEACCOUNTS, "default", namespace, bool, WAIT_S)

    async def _end_namespace(self, name: str) -> None:
        if self._is_alone:
            await self._client.delete_collection(PODS, name, field_selector="")
        await self._client.delete(NAMESPACES, name)

    def wait(
        self,
        resource: Resource | str,
        name: str,
        namespace: str | None = None,
        *,
        until: Callable[[JSON], bool] = bool,
        timeout: float = WAIT_S,
    ) -> JSON:
        """Wait until an object is as desired, and return it; follows a watch.

        Args:
            resource: a resource, or its path such as ``v1/pods`` or ``apps/v1/deployments``.
            until: gets the object, or {} while it does not exist.
            timeout: in seconds.

        Raises:
            ClusterError: it is not so in time; the text has the object's state and its events.
        """
        found = _resource(resource, namespace)
        try:
            return self._call(self._until(found, name, namespace, until, timeout))
        except ClusterError as error:
            __tracebackhide__ = True
            raise error.with_traceback(None) from None  # pytest then shows the test's own line

    async def reached(
        self,
        resource: Resource | str,
        name: str,
        namespace: str | None = None,
        *,
        until: Callable[[JSON], bool] = bool,
        timeout: float = WAIT_S,
    ) -> JSON:
        """The same as :meth:`wait` for an async test."""
        found = _resource(resource, namespace)
        work = self._submit(self._until(found, name, namespace, until, timeout))
        try:
            return await asyncio.wrap_future(work)
        except ClusterError as error:
            __tracebackhide__ = True
            raise error.with_traceback(None) from None

    def report(self, namespace: str) -> str:
        """The pods of a namespace, explained where they are not well, and its events."""
        return self._call(self._report(namespace))

    async def _until(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        until: Callable[[JSON], bool],
        timeout: float,
    ) -> JSON:
        last: JSON | None = None
        try:
            versions = _versions(self._client, resource, name, namespace)
            async with asyncio.timeout(timeout), aclosing(versions):
                async for last in versions:
                    if until(last):
                        return last
        except TimeoutError:
            pass
        where = f"{resource.plural} {namespace + '/' if namespace else ''}{name}"
        state = "it does not exist" if last is not None else "the API has not answered"
        state = last.get("status", {}).get("phase", "") if last else state
        about = await self._report(namespace) if namespace else ""
        text = f"{where} is not as desired within {timeout:g} s ({state})"
        raise ClusterError(f"{text}\n{about}".rstrip(), namespace)

    async def _report(self, namespace: str) -> str:
        pods = (await self._client.list(PODS, namespace))["items"]
        events = (await self._client.list(EVENTS, namespace))["items"]
        return namespace_report(pods, events, dict(self._explained(pods)))

    def _explained(self, pods: Iterable[JSON]) -> Iterator[tuple[str, str]]:
        for pod in pods:
            about, agent = pod["metadata"], self._agents.get(pod["spec"].get("nodeName", ""))
            if agent is not None and (text := agent.explain(about["namespace"], about["name"])):
                yield about["uid"], "\n".join((text, *self._log_ends(pod)))

    def _log_ends(self, pod: JSON) -> Iterator[str]:
        """The last lines of the newest logs of a pod's containers."""
        about = pod["metadata"]
        name = f"{about['namespace']}_{about['name']}_{about['uid']}"
        logs = self._directory / "nodes" / pod["spec"]["nodeName"] / "log" / "pods" / name
        for container in sorted(logs.glob("*")):
            newest = max(
                container.glob("[0-9]*.log"), default=None, key=lambda each: each.stat().st_mtime
            )
            text = newest.read_text(errors="replace") if newest is not None else ""
            if lines := text.splitlines()[-LOG_LINES:]:
                yield f"Log of {container.name}"
                yield from (f"  {line.split(' ', 3)[-1]}" for line in lines)


def _resource(found: Resource | str, namespace: str | None) -> Resource:
    """A resource from its path."""
    if isinstance(found, Resource):
        return found
    *group, version, plural = found.split("/")
    return Resource("/".join(group), version, plural, namespace is not None, "")


def _shows_ready(node: JSON) -> bool:
    return is_ready(node.get("status", {}))


async def _changes(
    api: KubeApi, resource: Resource, namespace: str | None, found: JSON, field: str
) -> AsyncGenerator[WatchEvent]:
    """Changes after a list, until its watch ends."""
    events: Any = api.watch(
        resource,
        namespace,
        field_selector=field,
        resource_version=found["metadata"]["resourceVersion"],
        timeout_seconds=_WATCH_S,
    )
    with contextlib.suppress(ApiError):  # the next list shows where it has ended
        async with aclosing(events):
            async for event in events:
                if event.type != "BOOKMARK":
                    yield event


async def _versions(
    api: KubeApi, resource: Resource, name: str, namespace: str | None
) -> AsyncGenerator[JSON]:
    """The versions of an object from now on; {} while it does not exist."""
    field = f"metadata.name={name}"
    while True:
        found = await api.list(resource, namespace, field_selector=field)
        yield found["items"][0] if found["items"] else {}
        async with aclosing(_changes(api, resource, namespace, found, field)) as changes:
            async for event in changes:
                yield {} if event.type == "DELETED" else event.object


async def _bind_in_turn(api: KubeApi, nodes: Sequence[str], selector: Mapping[str, str]) -> None:
    """Bind each pod without a node, and not for those of other programs, to the next node."""
    turn = itertools.cycle(nodes)
    field = "spec.nodeName="

    async def bind(pod: JSON) -> None:
        chosen = pod["spec"].get("nodeSelector") or {}
        if all(chosen.get(label, value) == value for label, value in selector.items()):
            await _bind(api, pod, next(turn))

    while True:
        found = await api.list(PODS, None, field_selector=field)
        for pod in found["items"]:
            await bind(pod)
        async with aclosing(_changes(api, PODS, None, found, field)) as changes:
            async for event in changes:
                if event.type == "ADDED":
                    await bind(event.object)


async def _bind(api: KubeApi, pod: JSON, node: str) -> None:
    about = pod["metadata"]
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": about["name"], "uid": about["uid"]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    with contextlib.suppress(ApiError):  # it is deleted, or bound already
        name, namespace = about["name"], about["namespace"]
        await api.create(PODS, body, namespace, subresource="binding", name=name)


@contextmanager
def _locked(directory: Path, abandoned: threading.Event) -> Iterator[None]:
    """Wait until no other program has locked a directory. Raises ClusterError: abandoned."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if abandoned.wait(0.05):
                    raise ClusterError("the control plane is no longer waited for") from None
        yield
    finally:
        os.close(descriptor)


def _node_kubeconfig(directory: Path, url: str, name: str) -> Path:
    """The kubeconfig of a node, with a client certificate."""
    from kubeletpy.base.host import x509

    pki = directory / "pki"
    authority, pair = KeyPair.named(pki, "ca"), KeyPair.named(directory, f"node-{name}")
    x509.make_signed(pair, authority, Names(f"system:node:{name}", ("system:nodes",)))
    path = directory / f"node-{name}.kubeconfig"
    write_kubeconfig(path, url, authority.certificate, name, pair)
    return path
