"""Fakes and builders for the tests of volumes: objects, APIs, plugins, nodes, programs."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import random
import shlex
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock, SystemClock
from kubeletpy.kubeapi.errors import AlreadyExists, ApiError, Conflict, NotFound, Unavailable
from kubeletpy.kubeapi.objects import WatchedObjects
from kubeletpy.kubeapi.protocol import (
    CONFIGMAPS,
    CSIDRIVERS,
    NODES,
    Call,
    KubeApi,
    Resource,
    WatchEvent,
)
from kubeletpy.kubeapi.watch_state import MAX_WATCHES, FailingWatches, StreamedLists
from kubeletpy.metrics.families import Families
from kubeletpy.metrics.volumes import VolumeMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.model import Mode, VolumeSource, VolumeSpec, VolumeTraits, Waits
from kubeletpy.volumes.claims.plugin import VolumePlugin
from kubeletpy.volumes.claims.resolve import Attached, ClaimVolume, NodeObservation
from kubeletpy.volumes.files.disk import mounts_below, unmount
from kubeletpy.volumes.intree import base
from kubeletpy.volumes.node.node_volumes import NodeVolumes
from kubeletpy.volumes.operations.acts import Expander, VolumeActs
from kubeletpy.volumes.operations.reporter import Reporter
from kubeletpy.volumes.projected.tokens import PodTokens
from kubeletpy.volumes.volume_manager import VolumeManager
from tests.kit.messages import streamed


def pod(uid: str = "u1", name: str = "p", **spec: Any) -> Pod:
    return Pod(
        {
            "metadata": {"name": name, "namespace": "ns", "uid": uid},
            "spec": {"containers": [{"name": "c", "image": "i"}], **spec},  # type: ignore[typeddict-item]
        }
    )


def claim(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "metadata": {"name": "data", "namespace": "ns", "uid": "claim-uid"},
        "spec": {"volumeName": "pv1"},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    }
    for key, value in changes.items():
        made[key] = {**made[key], **value}
    return made


def pv(source: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "pv1"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "claimRef": {"uid": "claim-uid", "namespace": "ns", "name": "data"},
            "volumeMode": "Filesystem",
            "accessModes": ["ReadWriteOnce"],
            **(source or {"csi": {"driver": "d", "volumeHandle": "h"}}),
            **spec,
        },
    }


def volume(kind: str = "persistentVolumeClaim", **source: Any) -> ClaimVolume:
    if kind == "persistentVolumeClaim":
        source.setdefault("claimName", "data")
    return ClaimVolume("v", kind, source, mounted=True, mapped=False)


def spec(name: str = "vol", **changes: Any) -> VolumeSpec:
    made: dict[str, Any] = {
        "plugin": "kubernetes.io/csi",
        "kind": "csi",
        "pod_volume": "v",
        "spec_name": "pv1",
        "unique_name": name,
        "source": {"driver": "d", "volumeHandle": "h"},
        "mode": Mode.FILESYSTEM,
        "read_only": False,
        "device_mountable": True,
    }
    return VolumeSpec(**{**made, **changes})


class Csi:
    """A plugin that describes CSI volumes as in table sc1."""

    name = "kubernetes.io/csi"
    kinds = frozenset({"csi"})

    def traits(self, source: VolumeSource) -> VolumeTraits | Waits:
        if source.inline:
            return VolumeTraits(f"{self.name}/{source.pod_uid}-{source.spec_name}", False, False)
        unique = f"{self.name}/{source.source['driver']}^{source.source['volumeHandle']}"
        return VolumeTraits(unique, attachable=True, device_mountable=True)


class ObservedNode:
    """The API's view of a node without claims: each volume is attached."""

    def __init__(self, in_use: frozenset[str] | None = None) -> None:
        self.in_use = in_use

    def observe(self, specs: Collection[VolumeSpec]) -> NodeObservation:
        attachments = {each.unique_name: self.attachment(each) for each in specs}
        return NodeObservation(self.in_use, attachments)

    def attachment(self, spec: VolumeSpec) -> Attached | Waits:
        return Attached()

    def on_change(self, listener: Callable[[str], None]) -> None:
        pass

    def release(self, uid: str) -> None:
        pass

    async def close(self) -> None:
        pass


class Failures(Reporter):
    """Keeps the messages of operations that failed, and reports nothing else."""

    def __init__(self) -> None:
        super().__init__(cast(Any, None), VolumeMetrics(Families()))
        self.messages: list[str] = []

    def ended(self, *args: Any) -> None:
        *_, failed = args
        if failed is not None:
            self.messages.append(failed.message)


def volume_manager(
    plugin: VolumePlugin,
    observed: ObservedNode,
    failures: Failures | None = None,
    changed: Callable[[str], None] = lambda uid: None,
) -> VolumeManager:
    """A manager of one plugin's volumes, without claims."""
    no, reporter = cast(Any, None), failures or Failures()
    acts = VolumeActs(Expander(no, no, no, "n"), reporter)
    return VolumeManager((plugin,), cast(Any, observed), acts, reporter, changed=changed)


Key = tuple[str, str, str]


LOST = WatchEvent("LOST", {})


def jwt(claims: object) -> str:
    """An unsigned token with these claims."""
    parts = [b'{"alg":"RS256"}', json.dumps(claims).encode(), bytes(range(256))]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


class FakeApi:
    """The calls of a KubeApi that volumes use."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self.objects: dict[Key, JSON] = {}
        self.calls: Counter[str] = Counter()
        self.open_watches = 0
        self.under_way = 0
        """Requests without an answer so far."""
        self.most_under_way = 0
        self.answers_after = 0.0
        """Seconds that a get or create takes."""
        self.refusals: list[ApiError] = []
        """Raised by the next calls, in order."""
        self.down: ApiError | None = None
        self.signs = False
        """Whether tokens are JWTs."""
        self.issued_ago = 0
        """Age of new tokens in seconds."""
        self.versions_asked: list[str] = []
        """The resourceVersion of each answered get."""
        self.streamed_lists = StreamedLists()
        self.failing_watches = FailingWatches()
        self.watch_capacity = MAX_WATCHES
        self._version = 1
        self._queues: list[tuple[Key, asyncio.Queue[WatchEvent]]] = []

    def put(self, name: str, resource: Resource = CONFIGMAPS, **fields: Any) -> None:
        key = (resource.plural, "default", name)
        kind = "MODIFIED" if key in self.objects else "ADDED"
        self._version += 1
        metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(self._version)}
        self.objects[key] = {"metadata": metadata, **fields}
        self._send_event(key, WatchEvent(kind, self.objects[key]))

    def remove(self, name: str, resource: Resource = CONFIGMAPS) -> None:
        key = (resource.plural, "default", name)
        self._version += 1
        self._send_event(key, WatchEvent("DELETED", self.objects.pop(key)))

    def lose_watches(self) -> None:
        """End all watches as a lost connection does."""
        for _, queue in self._queues:
            queue.put_nowait(LOST)

    def _send_event(self, key: Key, event: WatchEvent) -> None:
        for desired, queue in self._queues:
            if desired == key:
                queue.put_nowait(event)

    def _check(self, verb: str) -> None:
        self.calls[verb] += 1
        if self.refusals:
            raise self.refusals.pop(0)
        if self.down is not None:
            raise self.down

    async def _answered(self) -> None:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(self.answers_after)
        self.under_way -= 1

    async def get(
        self, resource: Resource, name: str, namespace: str, *, resource_version: str = ""
    ) -> JSON:
        self._check("get")
        self.versions_asked.append(resource_version)
        await self._answered()
        found = self.objects.get((resource.plural, namespace, name))
        if found is None:
            raise NotFound("there is none", code=404)
        return found

    async def list(self, resource: Resource, namespace: str, **supplied: Any) -> JSON:
        self._check("list")
        name = supplied["field_selector"].removeprefix("metadata.name=")
        found = self.objects.get((resource.plural, namespace, name))
        version = {"resourceVersion": str(self._version)}
        return {"metadata": version, "items": [found] if found else []}

    async def watch(
        self, resource: Resource, namespace: str, **supplied: Any
    ) -> AsyncIterator[WatchEvent]:
        self._check("watch")
        name = supplied["field_selector"].removeprefix("metadata.name=")
        queue: asyncio.Queue[WatchEvent] = asyncio.Queue()
        entry = ((resource.plural, namespace, name), queue)
        self._queues.append(entry)
        self.open_watches += 1
        try:
            if supplied["send_initial_events"]:
                found = self.objects.get(entry[0])
                for event in streamed([found] if found else [], str(self._version)):
                    yield event
            while True:
                event = await queue.get()
                if event is LOST:
                    raise Unavailable("connection lost")
                yield event
        finally:
            self.open_watches -= 1
            self._queues.remove(entry)

    async def create(self, resource: Resource, obj: JSON, namespace: str, **supplied: Any) -> JSON:
        self._check("create")
        await self._answered()
        assert self._clock is not None
        seconds = obj["spec"]["expirationSeconds"]
        now = int(self._clock.now())
        token = f"token-{self.calls['create']}"
        if self.signs:
            bound = obj["spec"]["boundObjectRef"]
            about = {
                "namespace": namespace,
                "pod": {"name": bound["name"], "uid": bound["uid"]},
                "serviceaccount": {"name": supplied["name"], "uid": "uid-account"},
            }
            begun = now - self.issued_ago
            life = {"iat": begun, "exp": begun + seconds, "jti": token}
            audience = obj["spec"]["audiences"] or ["api"]
            token = jwt({"aud": audience, **life, "kubernetes.io": about})
        status = {
            "token": token,
            "expirationTimestamp": format_time(now - self.issued_ago + seconds),
        }
        self.last_request = (supplied["name"], obj)
        return {**obj, "status": status}


class Cluster(KubeApi):
    """The part of an API that drivers need."""

    def __init__(self, **labels: str) -> None:
        self.objects: dict[tuple[str, str, str], JSON] = {}
        self.calls: list[str] = []
        self.refusals: list[ApiError] = []
        """Raised by the next calls, in order."""
        self.down: ApiError | None = None
        self._queues: list[tuple[str, asyncio.Queue[WatchEvent]]] = []
        self._version = 0
        self._written = asyncio.Event()
        self.put(NODES, "n", metadata={"uid": "node-uid", "labels": labels})

    def put(self, resource: Resource, name: str, namespace: str = "", **fields: Any) -> JSON:
        """Make or replace an object."""
        key = (resource.plural, namespace, name)
        self._version += 1
        self._written.set()
        supplied = fields.pop("metadata", {})
        metadata = {"name": name, "resourceVersion": str(self._version), **supplied}
        kind = "MODIFIED" if key in self.objects else "ADDED"
        self.objects[key] = {"metadata": metadata, **fields}
        for plural, queue in self._queues:
            if plural == resource.plural:
                queue.put_nowait(WatchEvent(kind, self.objects[key]))
        return self.objects[key]

    def driver(self, name: str, **spec: Any) -> None:
        """Make a CSIDriver."""
        self.put(CSIDRIVERS, name, spec={"fsGroupPolicy": "ReadWriteOnceWithFSType", **spec})

    async def wrote(self) -> None:
        """Wait for the next created or changed object."""
        self._written.clear()
        await self._written.wait()

    def get_now(self, resource: Resource, name: str) -> Any:
        """The current object, or None."""
        return self.objects.get((resource.plural, "", name))

    async def answer(self, call: Call) -> JSON:
        self.calls.append(f"{call.verb} {call.resource.plural}{call.subresource and '/token'}")
        await asyncio.sleep(0)
        if self.refusals:
            raise self.refusals.pop(0)
        if self.down is not None:
            raise self.down
        resource, key = call.resource, (call.resource.plural, call.namespace or "", call.name)
        if call.verb == "list":
            items = [found for (plural, _, _), found in self.objects.items() if plural == key[0]]
            return {"metadata": {"resourceVersion": str(self._version)}, "items": items}
        if call.subresource == "token":
            assert isinstance(call.body, dict)
            end = format_time(4_000_000_000.0)
            return {"spec": call.body["spec"], "status": {"token": "T", "expirationTimestamp": end}}
        body: Any = copy.deepcopy(call.body)
        if call.verb == "create":
            name = body["metadata"]["name"]
            if (key[0], key[1], name) in self.objects:
                raise AlreadyExists("it is there")
            body["metadata"].setdefault("uid", f"uid-{name}")
            return self.put(resource, name, key[1], **body)
        if key not in self.objects:
            raise NotFound(f'{key[0]} "{key[2]}" not found', code=404)
        found = self.objects[key]
        if call.verb == "update":
            if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
                raise Conflict("stale")
            del body["metadata"]["resourceVersion"]
            return self.put(resource, key[2], key[1], **body)
        if call.verb == "patch":
            merged = _merge(found, body)
            del merged["metadata"]["resourceVersion"]
            return self.put(resource, key[2], key[1], **merged)
        if call.verb == "delete":
            return self.objects.pop(key)
        return found

    async def follow(self, call: Call) -> AsyncIterator[WatchEvent]:
        queue: asyncio.Queue[WatchEvent] = asyncio.Queue()
        self._queues.append((call.resource.plural, queue))
        yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": call.resource_version}})
        if call.send_initial_events:
            plural = call.resource.plural
            items = [found for (each, _, _), found in self.objects.items() if each == plural]
            for event in streamed(items, str(self._version)):
                yield event
        while True:
            yield await queue.get()


def _merge(base: Any, patch: Any) -> Any:
    if not (isinstance(base, Mapping) and isinstance(patch, Mapping)):
        return patch
    merged = {**base}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(base.get(key, {}), value)
    return merged


class Programs:
    """A directory of programs; ``calls`` are their command lines."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory / "bin"
        self.directory.mkdir()
        self._log = directory / "calls"
        self._log.touch()
        monkeypatch.setattr(base, "PROGRAM_PATHS", str(self.directory))

    def add(self, name: str, body: str = "") -> None:
        """Install a program: a shell script, which may use ``$*``."""
        path, log = self.directory / name, shlex.quote(str(self._log))
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>{log}\n{body}\n')
        path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self._log.read_text().splitlines()


HUSH = base64.b64encode(b"hush").decode()


class Node:
    """A volume manager with its dependencies; ``restart`` is a kill -9 and a new start."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pods_dir = root / "pods"
        self.pods_dir.mkdir()
        self.clock = SystemClock()
        self.api = FakeApi(self.clock)
        self.events: list[str] = []
        self.woken = asyncio.Event()
        self.start()

    def start(self) -> None:
        kube_api = cast(Any, self.api)
        self.objects = WatchedObjects(kube_api, rng=random.Random(1))
        self.objects.on_change(lambda uid: self.woken.set())
        self.tokens = PodTokens(kube_api, self.clock, rng=random.Random(1))
        self.volumes = NodeVolumes(
            self.pods_dir,
            self.objects,
            self.tokens,
            self,
            self.clock,
            allocatable={"memory": "64Mi"},
        )

    async def restart(self) -> None:
        await self.objects.close()
        self.tokens.close()
        self.start()

    def event(self, ref: Any, kind: str, reason: str, text: str, annotations: Any = None) -> None:
        self.events.append(f"{reason}: {text}")

    def path(self, plugin: str, volume: str = "v") -> Path:
        return self.pods_dir / "u" / "volumes" / f"kubernetes.io~{plugin}" / volume

    @property
    def mounts(self) -> list[str]:
        return mounts_below(str(self.root))


N = TypeVar("N", bound=Node)


@asynccontextmanager
async def running(kind: Callable[[Path], N]) -> AsyncIterator[N]:
    """A node on a directory of its own; afterwards nothing is mounted below it."""
    root = Path(tempfile.mkdtemp(prefix="kpv-", dir="/tmp"))
    made = kind(root)
    yield made
    await made.objects.close()
    made.tokens.close()
    for point in made.mounts:
        unmount(point)
    shutil.rmtree(root)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with running(Node) as made:
        yield made


def pod_of(*volumes: Any, uid: str = "u", uses: list[Any] | None = None, **spec: Any) -> Pod:
    metadata = {"name": "p", "namespace": "default", "uid": uid, "labels": {"app": "x"}}
    found = [{"name": v["name"], "mountPath": f"/{v['name']}"} for v in volumes]
    container = {"name": "c", "volumeMounts": uses or found}
    obj = {"metadata": metadata, "spec": {"containers": [container], "volumes": volumes, **spec}}
    return Pod(cast(Any, obj))


CONFIG = {"name": "v", "configMap": {"name": "cfg"}}
SECRET = {"name": "v", "secret": {"secretName": "s"}}
FIELD = {"path": "app", "fieldRef": {"fieldPath": "metadata.labels['app']"}}
