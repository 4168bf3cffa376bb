"""Claims as a user makes them: the default class, what stays, what goes, what waits and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubeletpy.base.api.types import JSON
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status
from tests.integration.volumes.test_kinds import mount, sh

_CLAIMS, _VOLUMES = "persistentvolumeclaims", "persistentvolumes"


def claim(name: str, amount: str = "1Gi", *modes: str, **spec: Any) -> JSON:
    """A claim of the default class unless the spec names another."""
    requested = {"accessModes": modes or ("ReadWriteOnce",), **spec}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {**requested, "resources": {"requests": {"storage": amount}}},
    }


def using(name: str, claim_name: str, script: str = FOREVER, **more: Any) -> JSON:
    main = container("main", script, volumeMounts=[mount("data", "/data")])
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}
    return pod(name, main, volumes=[volume], **more)


def running(node: Node, namespace: str, name: str) -> str:
    """The id of a pod's container, once it runs."""
    return str(container_status(node.wait_running(namespace, name))["containerID"])


def reported(node: Node, what: str, namespace: str = "") -> list[list[str]]:
    """The rows of `kubectl get`, without ages."""
    stated = node.kubectl("get", what, "--no-headers", namespace=namespace or "default")
    return [line.split()[:-1] for line in stated.splitlines()]


def volume_of(node: Node, namespace: str, name: str) -> JSON:
    found = node.api.find(_CLAIMS, namespace, name)
    assert found is not None
    volume = node.api.find(_VOLUMES, "", found["spec"]["volumeName"])
    assert volume is not None
    return volume


def end(node: Node, namespace: str, name: str) -> None:
    node.kubectl("delete", "pod", name, "--grace-period=1", namespace=namespace)


def condition(node: Node, namespace: str, name: str) -> str:
    """The scheduler's message about a pod that it does not place."""

    def found() -> str | None:
        conditions = (node.pod(namespace, name).get("status") or {}).get("conditions") or []
        messages = [str(c.get("message")) for c in conditions if c["type"] == "PodScheduled"]
        return messages[0] if messages else None

    return str(node.until(found, f"a word on {name}", namespace))


def test_a_claim_of_the_default_class_just_works(node: Node, namespace: str) -> None:
    assert reported(node, "sc")[0][:3] == ["local", "(default)", "kubeletpy/local-directory"]
    node.apply(claim("data"), namespace=namespace)
    assert reported(node, "pvc", namespace)[0][:2] == ["data", "Pending"]
    node.wait_event(namespace, "data", "WaitForFirstConsumer: waiting for first consumer")
    node.apply(using("first", "data"), namespace=namespace)
    sh(node, running(node, namespace, "first"), "echo kept > /data/file; ln -s /etc /data/link")
    volume = volume_of(node, namespace, "data")
    name, path = volume["metadata"]["name"], Path(volume["spec"]["local"]["path"])
    assert reported(node, "pvc", namespace)[0][:6] == ["data", "Bound", name, "1Gi", "RWO", "local"]
    (row,) = [row for row in reported(node, "pv") if row[0] == name]
    assert row[1:6] == ["1Gi", "RWO", "Delete", "Bound", f"{namespace}/data"]
    assert (path / "file").read_text() == "kept\n"
    assert path.parent.stat().st_mode & 0o777 == 0o700
    end(node, namespace, "first")
    node.apply(using("second", "data"), namespace=namespace)
    assert sh(node, running(node, namespace, "second"), "cat /data/file") == "kept\n"

    node.kubectl("delete", "pvc", "data", "--wait=false", namespace=namespace)
    assert reported(node, "pvc", namespace)[0][:2] == ["data", "Terminating"]
    assert (path / "file").exists()
    end(node, namespace, "second")
    node.until(lambda: not node.api.all(_CLAIMS, namespace), "the claim is removed", namespace)
    node.until(
        lambda: node.api.find(_VOLUMES, "", name) is None, "the volume is removed", namespace
    )
    assert not path.exists()
    assert Path("/etc/passwd").exists()


def test_pods_that_wait_for_claims(node2: Node, namespace: str) -> None:
    node2.apply(using("missing", "nothing"), namespace=namespace)
    stated = '0/1 nodes are available: persistentvolumeclaim "nothing" not found.'
    assert condition(node2, namespace, "missing") == stated
    node2.apply(claim("none", storageClassName=""), using("unbound", "none"), namespace=namespace)
    stated = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    assert condition(node2, namespace, "unbound") == stated
    node2.wait_event(namespace, "none", "FailedBinding: no persistent volumes available")
    node2.apply(claim("nothing"), namespace=namespace)
    running(node2, namespace, "missing")


def test_one_pod_alone(node2: Node, namespace: str) -> None:
    node2.apply(claim("data", "1Gi", "ReadWriteOncePod"), using("p", "data"), namespace=namespace)
    running(node2, namespace, "p")
    node2.apply(using("q", "data"), namespace=namespace)
    assert "ReadWriteOncePod access mode already in-use" in condition(node2, namespace, "q")
    end(node2, namespace, "p")
    running(node2, namespace, "q")


def test_a_volume_of_the_pods_own(node2: Node, namespace: str) -> None:
    main = container("main", FOREVER, volumeMounts=[mount("own", "/data")])
    template = {"volumeClaimTemplate": {"spec": claim("")["spec"]}}
    volume = {"name": "own", "ephemeral": template}
    node2.apply(pod("p", main, volumes=[volume]), namespace=namespace)
    sh(node2, running(node2, namespace, "p"), "echo x > /data/file")
    path = Path(volume_of(node2, namespace, "p-own")["spec"]["local"]["path"])
    assert (path / "file").exists()
    end(node2, namespace, "p")
    node2.until(lambda: not node2.api.all(_CLAIMS, namespace), "no claim", namespace)
    node2.until(lambda: not path.exists(), "no directory", namespace)
