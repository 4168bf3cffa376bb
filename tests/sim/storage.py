"""The storage half of a simulated cluster: claims, volumes, and the controller that attaches.

It outlives agents. Claims, volumes and attachments can be read and not watched, as the Node
authorizer has it; CSIDrivers can be watched.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from kubeletpy.kubeapi.protocol import Call, WatchEvent
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN
from tests.kit.messages import streamed
from tests.sim.history import History

PLURALS = frozenset(
    {"persistentvolumeclaims", "persistentvolumes", "volumeattachments", "csidrivers", "csinodes"}
)
_WATCHED = frozenset({"csidrivers"})
LOOKS_EVERY = 0.5
"""Seconds between two rounds of the attach controller."""

Key = tuple[str, str, str]


def attachment_name(handle: str, driver: str, node: str) -> str:
    """The name of a VolumeAttachment."""
    from kubeletpy.volumes.claims.resolve import attachment_name as name

    return name(handle, driver, node)


class Storage:
    """Objects of storage, and what is attached."""

    def __init__(self, registry: Registry, node: str, rng: random.Random, history: History) -> None:
        self._registry = registry
        self._node = node
        self._rng = rng
        self._history = history
        self._objects: dict[Key, JSON] = {}
        self._version = 0
        self._watches: dict[asyncio.Queue[WatchEvent], str] = {}
        self.staged_on_node: Callable[[str], bool] = lambda handle: False
        """Whether a driver still has a volume staged on the node."""
        self.drivers: dict[str, bool] = {}
        """Name -> whether its volumes are attached."""

    # -- what users and controllers do ----------------------------------------------------------

    def add_driver(self, name: str, *, attach: bool, **spec: Any) -> None:
        """Make a CSIDriver."""
        self.drivers[name] = attach
        body = {
            "attachRequired": attach,
            "fsGroupPolicy": "ReadWriteOnceWithFSType",
            "volumeLifecycleModes": ["Persistent", "Ephemeral"],
            **spec,
        }
        self._put("csidrivers", "", name, {"spec": body})

    def add_claim(
        self,
        name: str,
        driver: str,
        *,
        mode: str = "ReadWriteMany",
        block: bool = False,
        bound: bool = True,
        owners: Sequence[JSON] = (),
    ) -> None:
        """Make a claim and its volume, whose handle is the claim's name."""
        volume_mode = "Block" if block else "Filesystem"
        self._put(
            "persistentvolumeclaims",
            "default",
            name,
            {
                "metadata": {"ownerReferences": list(owners)},
                "spec": {
                    "accessModes": [mode],
                    "volumeMode": volume_mode,
                    "resources": {"requests": {"storage": "1Gi"}},
                },
                "status": {"phase": "Pending"},
            },
        )
        claim = self._objects[("persistentvolumeclaims", "default", name)]
        self._put(
            "persistentvolumes",
            "",
            f"pv-{name}",
            {
                "spec": {
                    "volumeMode": volume_mode,
                    "accessModes": [mode],
                    "capacity": {"storage": "1Gi"},
                    "claimRef": {
                        "namespace": "default",
                        "name": name,
                        "uid": claim["metadata"]["uid"],
                    },
                    "csi": {"driver": driver, "volumeHandle": name, "fsType": "ext4"},
                },
                "status": {"phase": "Bound"},
            },
        )
        if bound:
            self.bind(name)

    def bind(self, name: str) -> None:
        """Bind a claim to its volume."""
        claim = self._objects[("persistentvolumeclaims", "default", name)]
        if claim["spec"].get("volumeName"):
            return
        claim["spec"]["volumeName"] = f"pv-{name}"
        claim["status"] = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
        self._touch(claim)

    def expand(self, name: str, *, recovery: bool) -> None:
        """Have a claim grow by 1 Gi; the controller's part is done at once."""
        claim = self._objects[("persistentvolumeclaims", "default", name)]
        if not claim["spec"].get("volumeName") or self._pending_size(claim):
            return
        volume = self._objects[("persistentvolumes", "", f"pv-{name}")]
        size = f"{int(volume['spec']['capacity']['storage'].removesuffix('Gi')) + 1}Gi"
        volume["spec"]["capacity"]["storage"] = size
        claim["spec"]["resources"]["requests"]["storage"] = size
        claim["status"].pop("allocatedResources", None)  # what a resize before this one has left
        if recovery:
            claim["status"]["allocatedResources"] = {"storage": size}
            claim["status"]["allocatedResourceStatuses"] = {"storage": "NodeResizePending"}
        self._touch(volume)
        self._touch(claim)
        self._history.note("user", f"claim {name} is to have {size}")

    def claims(self) -> list[str]:
        """The names of all claims."""
        return [name for plural, _, name in self._objects if plural == "persistentvolumeclaims"]

    def unexpanded(self, names: set[str]) -> list[str]:
        """Those of these claims that are smaller than their volumes."""
        found = []
        for name in sorted(names):
            claim = self._objects[("persistentvolumeclaims", "default", name)]
            if self._pending_size(claim):
                found.append(f"claim {name} is not expanded: {claim['status']}")
        return found

    def _pending_size(self, claim: JSON) -> bool:
        volume = self._objects.get(("persistentvolumes", "", f"pv-{claim['metadata']['name']}"))
        has = (claim["status"].get("capacity") or {}).get("storage")
        return volume is not None and has != volume["spec"]["capacity"]["storage"]

    def is_sole(self, handle: str) -> bool:
        """Whether a volume is for one pod alone."""
        found = self._objects.get(("persistentvolumes", "", f"pv-{handle}"))
        return found is not None and found["spec"]["accessModes"] == ["ReadWriteOncePod"]

    # -- the controller -------------------------------------------------------------------------

    async def attach_volumes(self) -> None:
        """The attach-detach controller and the external attacher."""
        while True:
            await asyncio.sleep(LOOKS_EVERY)
            self._make_ephemeral()
            self._attach()
            self._delete_ephemeral()

    def attached(self, handle: str) -> bool:
        """Whether the node has a volume, or its driver needs no attachment."""
        driver = self._driver_of(handle)
        if driver is None or not self.drivers[driver]:
            return True
        name = attachment_name(handle, driver, self._node)
        found = self._objects.get(("volumeattachments", "", name))
        return found is not None and bool(found["status"].get("attached"))

    def csi_node(self) -> JSON:
        """The node's CSINode; empty: there is none yet."""
        return copy.deepcopy(self._objects.get(("csinodes", "", self._node), {}))

    def attachments(self) -> list[str]:
        """VolumeAttachments of volumes that are attached, or about to be."""
        return [name for plural, _, name in self._objects if plural == "volumeattachments"]

    def _handles(self) -> list[str]:
        return [
            volume["spec"]["csi"]["volumeHandle"]
            for (plural, _, _), volume in self._objects.items()
            if plural == "persistentvolumes"
        ]

    def _driver_of(self, handle: str) -> str | None:
        volume = self._objects.get(("persistentvolumes", "", f"pv-{handle}"))
        return None if volume is None else volume["spec"]["csi"]["driver"]

    def _attach(self) -> None:
        node = self._registry.find("nodes", "", self._node)
        if node is None:
            return
        status = node.get("status") or {}
        in_use = set(status.get("volumesInUse") or ())
        listed = {entry["name"] for entry in status.get("volumesAttached") or ()}
        desired, should = self._handles_in_use(), set[str]()
        for handle in self._handles():
            driver = self._driver_of(handle)
            if driver is None or not self.drivers[driver]:
                continue
            unique = f"kubernetes.io/csi/{driver}^{handle}"
            key = ("volumeattachments", "", attachment_name(handle, driver, self._node))
            found = self._objects.get(key)
            if handle in desired:
                should |= self._attach_one(key, found, driver, handle, unique)
            elif found is not None and unique in in_use:
                should |= {unique} & listed
            elif found is not None and unique not in listed:
                if self.staged_on_node(handle):
                    self._history.violated(f"{handle} left volumesInUse while it is staged")
                self._history.note("attacher", f"detaches {handle}")
                del self._objects[key]
        if should != listed:
            names = [{"name": name, "devicePath": ""} for name in sorted(should)]
            patch = {"status": {"volumesAttached": names}}
            self._registry.patch(ADMIN, "nodes", self._node, patch, subresource="status")

    def _attach_one(
        self, key: Key, found: JSON | None, driver: str, handle: str, unique: str
    ) -> set[str]:
        if found is None:
            spec = {"attacher": driver, "nodeName": self._node}
            self._put(*key, {"spec": spec, "status": {"attached": False}})
        elif found["status"]["attached"]:
            return {unique}
        elif self._rng.random() < 0.3:
            found["status"] = {"attached": False, "attachError": {"message": "injected: busy"}}
            self._touch(found)
        else:
            found["status"] = {"attached": True, "attachmentMetadata": {"of": handle}}
            self._touch(found)
            self._history.note("attacher", f"attaches {handle}")
        return set()

    def _handles_in_use(self) -> set[str]:
        return {
            claim_of(entry.object, volume)
            for _, entry in self._registry.store.entries("pods")
            if (entry.object.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
            for volume in entry.object["spec"].get("volumes") or ()
        } - {""}

    def _make_ephemeral(self) -> None:
        """The controller of generic ephemeral volumes, and the provisioner."""
        for _, entry in self._registry.store.entries("pods"):
            meta = entry.object["metadata"]
            for volume in entry.object["spec"].get("volumes") or ():
                name = claim_of(entry.object, volume)
                if "ephemeral" not in volume or name in self.claims():
                    continue
                owner = {"kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
                owners = [{"apiVersion": "v1", "controller": True, **owner}]
                self.add_claim(name, volume["name"].partition("-")[0], owners=owners)

    def _delete_ephemeral(self) -> None:
        """Delete the claims of deleted pods at once, their volumes once they are detached."""
        uids = {
            entry.object["metadata"]["uid"] for _, entry in self._registry.store.entries("pods")
        }
        for key, found in list(self._objects.items()):
            if key[0] == "persistentvolumeclaims":
                owners = found["metadata"].get("ownerReferences")
                if owners and owners[0]["uid"] not in uids:
                    del self._objects[key]
            elif key[0] == "persistentvolumes":
                name = found["spec"]["claimRef"]["name"]
                driver = found["spec"]["csi"]["driver"]
                attachment = attachment_name(name, driver, self._node)
                is_attached = ("volumeattachments", "", attachment) in self._objects
                if name not in self.claims() and not is_attached:
                    del self._objects[key]

    # -- the API --------------------------------------------------------------------------------

    def answer(self, call: Call) -> JSON:
        """Answer a call of the agent. Raises ApiError."""
        plural = call.resource.plural
        key = (plural, call.namespace or "", call.name)
        match call.verb:
            case "list" if plural in _WATCHED:
                items = [each for (kind, _, _), each in self._objects.items() if kind == plural]
                return {"metadata": {"resourceVersion": str(self._version)}, "items": items}
            case "list":
                raise Forbidden(f"a node may not list {plural}", code=403)
            case "create":
                body: Any = call.body
                name = body["metadata"]["name"]
                if (plural, "", name) in self._objects:
                    raise AlreadyExists("it is there", code=409)
                return self._put(plural, "", name, body)
        found = self._objects.get(key)
        if found is None:
            raise NotFound(f'{plural} "{call.name}" not found', code=404)
        if call.verb == "delete":
            del self._objects[key]
        elif call.verb in ("update", "patch"):
            self._change(found, call)
        return copy.deepcopy(found)

    def _change(self, found: JSON, call: Call) -> None:
        body: Any = call.body
        version = (body.get("metadata") or {}).get("resourceVersion")
        if version is not None and version != found["metadata"]["resourceVersion"]:
            raise Conflict("it has changed", code=409)
        before = copy.deepcopy(found)
        if call.verb == "update":
            found["spec"] = body["spec"]
        elif call.resource.plural == "csinodes" and call.subresource == "status":
            if body["metadata"]["uid"] != found["metadata"]["uid"]:
                raise Invalid("metadata.uid: field is immutable", code=422)
            found["status"] = body["status"]
        elif call.resource.plural != "persistentvolumeclaims" or call.subresource != "status":
            raise Invalid("nobody patches that", code=422)
        else:
            _patch_status(found["status"], body["status"])
        if found != before:
            self._touch(found)

    async def watch(self, call: Call) -> AsyncIterator[WatchEvent]:
        """Follow objects; only CSIDrivers may be followed."""
        plural = call.resource.plural
        if plural not in _WATCHED:
            raise Forbidden(f"a node may not watch {plural}", code=403)
        queue: asyncio.Queue[WatchEvent] = asyncio.Queue()
        self._watches[queue] = plural
        try:
            if call.send_initial_events:
                items = [each for (kind, _, _), each in self._objects.items() if kind == plural]
                for event in streamed(copy.deepcopy(items), str(self._version)):
                    yield event
            while True:
                yield await queue.get()
        finally:
            del self._watches[queue]

    def break_watches(self) -> None:
        """End all watches with an error 410."""
        for queue in self._watches:
            queue.put_nowait(WatchEvent("ERROR", {"code": 410, "reason": "Gone", "message": ""}))

    def _put(self, plural: str, namespace: str, name: str, obj: JSON) -> JSON:
        made = copy.deepcopy(obj)
        made["metadata"] = {
            **(made.get("metadata") or {}),
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{plural}-{name}",
        }
        self._objects[(plural, namespace, name)] = made
        self._touch(made)
        for queue, of in self._watches.items():
            if of == plural:
                queue.put_nowait(WatchEvent("MODIFIED", copy.deepcopy(made)))
        return copy.deepcopy(made)

    def _touch(self, obj: JSON) -> None:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)


def claim_of(pod: JSON, volume: JSON) -> str:
    """The name of a pod's volume's claim; empty: it has none."""
    if "ephemeral" in volume:
        return f"{pod['metadata']['name']}-{volume['name']}"
    return str((volume.get("persistentVolumeClaim") or {}).get("claimName") or "")


def _patch_status(status: JSON, patch: JSON) -> None:
    """A strategic merge patch of a claim's status."""
    for key, value in patch.items():
        if key == "conditions":
            by_type = {c["type"]: c for c in status.get("conditions") or ()}
            for condition in value:
                by_type.pop(condition["type"], None)
                if condition.get("$patch") != "delete":
                    by_type[condition["type"]] = condition
            status["conditions"] = list(by_type.values())
            continue
        merged = {**(status.get(key) or {}), **value}
        status[key] = {name: each for name, each in merged.items() if each is not None}
        if not status[key]:
            del status[key]
