"""A cluster's work for a node's storage, by hand: binds claims, attaches and resizes volumes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.base.host import mount_table
from kubeletpy.volumes.claims.resolve import attachment_name
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status
from tests.integration.node.user_side import TIMEOUT
from tests.integration.storage.driver import DriverProcess
from tools.env.process import run
from tools.env.waiting import NotReadyError

CLASS = "by-hand"
"""Storage class of all claims: it lets them grow."""
BY_DEFAULT = {"attachRequired": False, "fsGroupPolicy": "File"}
"""Fields of the tests' CSIDriver objects."""


class Storage:
    """A node that follows its own claims and volumes with a node's rights, and its drivers."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.drivers: list[DriverProcess] = []
        grows = {"provisioner": "kubernetes.io/no-provisioner", "allowVolumeExpansion": True}
        node.api.create("storageclasses", "", {"metadata": {"name": CLASS}, **grows})

    @property
    def registry(self) -> Path:
        """Directory in which drivers register."""
        return self.node.root_dir / "plugins_registry"

    def start_agent(self) -> None:
        """Start the agent; returns when it answers and is Ready."""
        self.node.start_agent()
        self.node.until(lambda: self.node.http("/healthz")[0] == 200, "the agent answers")
        self.node.wait_ready()

    def restart_agent(self) -> None:
        """Kill -9 the agent, and start a new one."""
        self.node.kill()
        self.start_agent()

    def driver(self, name: str, *, spec: JSON | None = None, **options: Any) -> DriverProcess:
        """A driver that is registered, with its CSIDriver object."""
        made = DriverProcess(self.node.directory / name, self.registry, name, **options)
        self.drivers.append(made)
        about = {"metadata": {"name": name}, "spec": {**BY_DEFAULT, **(spec or {})}}
        self.node.api.create("csidrivers", "", about)
        made.start()
        self.wait_registered(name)
        return made

    def wait_registered(self, name: str) -> None:
        """Wait until CSINode shows a driver."""

        def reported() -> bool:
            found = self.node.api.find("csinodes.storage.k8s.io", "", self.node.name) or {}
            drivers = (found.get("spec") or {}).get("drivers") or []
            return any(driver["name"] == name for driver in drivers)

        self.node.until(reported, f"driver {name} in CSINode")

    def claim(
        self,
        namespace: str,
        name: str,
        source: JSON,
        *,
        modes: tuple[str, ...] = ("ReadWriteOnce",),
        size: str = "16Mi",
        **spec: Any,
    ) -> str:
        """A claim that is bound to a volume of its own; the volume's name."""
        api, volume = self.node.api, f"pv-{namespace}-{name}"
        wants = {
            "accessModes": list(modes),
            "volumeName": volume,
            "storageClassName": CLASS,
            "resources": {"requests": {"storage": size}},
            **{key: value for key, value in spec.items() if key == "volumeMode"},
        }
        claim = api.create(
            "persistentvolumeclaims", namespace, {"metadata": {"name": name}, "spec": wants}
        )
        has = {
            "accessModes": list(modes),
            "capacity": {"storage": size},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": CLASS,
            "claimRef": {
                "namespace": namespace,
                "name": name,
                "uid": claim["metadata"]["uid"],
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
            },
            **source,
            **spec,
        }
        api.create("persistentvolumes", "", {"metadata": {"name": volume}, "spec": has})
        bound = {"phase": "Bound", "accessModes": list(modes), "capacity": {"storage": size}}
        self.claim_status(namespace, name, **bound)
        return volume

    def csi_claim(self, driver: DriverProcess, namespace: str, name: str, **spec: Any) -> str:
        """A claim of a volume that a driver has made for it; the volume's handle."""
        block = spec.get("volumeMode") == "Block"
        handle = driver.volume(f"{namespace}-{name}", block=block)
        self.claim(
            namespace, name, {"csi": {"driver": driver.name, "volumeHandle": handle}}, **spec
        )
        return handle

    def claim_status(self, namespace: str, name: str, **status: Any) -> None:
        """Write to a claim's status, as its controllers do."""
        self._patch("persistentvolumeclaims", namespace, name, {"status": status}, "status")

    def grow(self, namespace: str, name: str, size: str) -> None:
        """Do the work of a driver's resizer, once its controller has expanded a volume."""
        volume = f"pv-{namespace}-{name}"
        wants = {"spec": {"resources": {"requests": {"storage": size}}}}
        self._patch("persistentvolumeclaims", namespace, name, wants)
        self._patch("persistentvolumes", "", volume, {"spec": {"capacity": {"storage": size}}})
        status = {
            "allocatedResources": {"storage": size},
            "allocatedResourceStatuses": {"storage": "NodeResizePending"},
            "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
        }

        def pending(registry: Registry) -> None:
            """The node may have been quicker: a resizer's write then conflicts."""
            claim = registry.find("persistentvolumeclaims", namespace, name)
            assert claim is not None
            if claim["status"].get("capacity") != {"storage": size}:
                kind, patch = "persistentvolumeclaims", {"status": status}
                registry.patch(ADMIN, kind, name, patch, namespace, subresource="status")

        self.node.api.call(pending)

    def claimed(self, namespace: str, name: str) -> JSON:
        """A claim's status."""
        found = self.node.api.find("persistentvolumeclaims", namespace, name) or {}
        status: JSON = found.get("status") or {}
        return status

    def attach(self, driver: DriverProcess, handle: str, volume: str) -> None:
        """Do the work of attach controller and attacher, once the volume is in volumesInUse."""
        unique, node = f"kubernetes.io/csi/{driver.name}^{handle}", self.node
        node.until(
            lambda: unique in (self._node_status().get("volumesInUse") or []), f"{unique} in use"
        )
        name = attachment_name(handle, driver.name, node.name)
        wants = {
            "attacher": driver.name,
            "nodeName": node.name,
            "source": {"persistentVolumeName": volume},
        }
        node.api.create("volumeattachments", "", {"metadata": {"name": name}, "spec": wants})
        attached = {"attached": True, "attachmentMetadata": {"attached": "yes"}}
        self._patch("volumeattachments", "", name, {"status": attached}, "status")
        there = [{"name": unique, "devicePath": ""}]
        self._patch("nodes", "", node.name, {"status": {"volumesAttached": there}}, "status")

    def pod(self, namespace: str, name: str, *claims: str, **more: Any) -> None:
        """Create a pod with claims, each at ``/CLAIM``; those of ``devices`` as ``/dev/CLAIM``."""
        devices = more.pop("devices", ())
        use = {
            "volumeMounts": [
                {"name": claim, "mountPath": f"/{claim}"}
                for claim in claims
                if claim not in devices
            ],
            "volumeDevices": [{"name": claim, "devicePath": f"/dev/{claim}"} for claim in devices],
        }
        main = container("main", FOREVER, **{**use, **more.pop("container", {})})
        volumes = [
            {"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims
        ]
        volumes += more.pop("volumes", [])
        made = pod(name, main, volumes=volumes, **more)
        self.node.api.create("pods", namespace, _on(made, self.node.name))

    def sh(self, namespace: str, name: str, script: str) -> str:
        """Output of a shell script in a pod's container; it must succeed."""
        found = container_status(self.node.pod(namespace, name))
        code, stated = self.node.exec(str(found["containerID"]), "sh", "-c", script)
        assert code == 0, stated
        return stated

    def end(self, namespace: str, *names: str, timeout: float = TIMEOUT) -> None:
        """Delete pods, and wait until they are removed."""
        for name in names:
            self.node.api.delete("pods", namespace, name, grace=1)
        for name in names:
            self.node.wait_removed(namespace, name, timeout)

    def let_go(self, kind: str, namespace: str, name: str) -> None:
        """Take the finalizers of an object, as its controllers do."""
        self._patch(kind, namespace, name, {"metadata": {"finalizers": None}})

    def explain(self, namespace: str, name: str) -> str:
        """Output of ``kubeletpy explain`` for a pod."""
        socket = self.node.root_dir / "explain.sock"
        command = [sys.executable, "-m", "kubeletpy.cli.main", "explain", name]
        return run(*command, f"--namespace={namespace}", f"--socket={socket}")

    def left(self) -> list[str]:
        """Files and mounts of volumes that are left when no pod has one."""
        root = self.node.root_dir
        found = [str(path) for path in root.glob("plugins/kubernetes.io/**/*") if path.is_file()]
        found += [str(path) for path in root.glob("pods/*/volume*/**/vol_data.json")]
        table = mount_table.parse(Path("/proc/self/mountinfo").read_bytes())
        return found + [each.path for each in table if each.path.startswith(f"{root}/")]

    def wait_nothing_left(self) -> None:
        """Wait until nothing is left of volumes: what a driver stages is unstaged after the pod."""
        try:
            self.node.until(lambda: not self.left(), "nothing left of volumes")
        except NotReadyError as error:
            raise NotReadyError("\n".join(["left:", *self.left(), str(error)])) from error

    def close(self) -> None:
        """End the drivers."""
        for driver in self.drivers:
            driver.remove()

    def _node_status(self) -> JSON:
        found: JSON = (self.node.api.find("nodes", "", self.node.name) or {}).get("status") or {}
        return found

    def _patch(
        self, kind: str, namespace: str, name: str, patch: JSON, subresource: str = ""
    ) -> None:
        self.node.api.call(
            lambda registry: registry.patch(
                ADMIN, kind, name, patch, namespace or None, subresource=subresource
            )
        )


def _on(made: JSON, node: str) -> JSON:
    return {**made, "spec": {**made["spec"], "nodeName": node}}
