"""Each kind of volume, seen from inside a real container; and volumes while time goes by."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy_up.requests import ADMIN
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status


def run(node: Node, namespace: str, *volumes: JSON, mounts: list[JSON], **more: Any) -> str:
    """Start a pod with one container and these volumes; its container id."""
    main = container("main", FOREVER, volumeMounts=mounts, **more.pop("container", {}))
    node.apply(pod("p", main, volumes=list(volumes), **more), namespace=namespace)
    found = node.wait_running(namespace, "p")
    return str(container_status(found)["containerID"])


def sh(node: Node, container_id: str, script: str) -> str:
    """Output of a shell script in the container; it must succeed."""
    code, stated = node.exec(container_id, "sh", "-c", script)
    assert code == 0, stated
    return stated


def mount(name: str, path: str, **more: Any) -> JSON:
    return {"name": name, "mountPath": path, **more}


def create(node: Node, kind: str, namespace: str, name: str, **fields: Any) -> None:
    node.api.create(kind, namespace, {"metadata": {"name": name}, **fields})


def test_config_map(node: Node, namespace: str) -> None:
    create(
        node,
        "configmaps",
        namespace,
        "cfg",
        data={"a": "one", "b.conf": "two"},
        binaryData={"raw": base64.b64encode(b"\x00\xff").decode()},
    )
    items = [{"key": "a", "path": "deep/er/a", "mode": 0o400}, {"key": "raw", "path": "raw"}]
    some = run(
        node,
        namespace,
        {"name": "all", "configMap": {"name": "cfg"}},
        {"name": "some", "configMap": {"name": "cfg", "items": items, "defaultMode": 0o640}},
        {"name": "none", "configMap": {"name": "not-there", "optional": True}},
        mounts=[mount("all", "/all"), mount("some", "/some"), mount("none", "/none")],
    )
    assert sh(node, some, "cat /all/a /all/b.conf; od -An -tx1 /all/raw") == "onetwo 00 ff\n"
    assert sh(node, some, "cat /some/deep/er/a; ls /some") == "onedeep\nraw\n"
    assert sh(node, some, "ls /none") == ""
    modes = sh(node, some, "cd /some; stat -L -c '%a %u %g %n' deep/er/a raw deep; stat -c %a .")
    assert modes == "400 0 0 deep/er/a\n640 0 0 raw\n755 0 0 deep\n777\n"
    assert sh(node, some, "readlink /all/a") == "..data/a\n"
    code, stated = node.exec(some, "touch", "/all/x")
    assert code != 0
    assert "Read-only" in stated


def test_secret_is_in_memory(node: Node, namespace: str) -> None:
    create(node, "secrets", namespace, "s", data={"k": base64.b64encode(b"hush").decode()})
    found = run(
        node,
        namespace,
        {"name": "s", "secret": {"secretName": "s", "defaultMode": 0o400}},
        mounts=[mount("s", "/s")],
    )
    stated = sh(node, found, "cat /s/k; stat -L -c ' %a' /s/k; stat -f -c %T /s")
    assert stated == "hush 400\ntmpfs\n"
    assert not any("hush" in line for line in node.log_lines())


def test_downward_api(node: Node, namespace: str) -> None:
    fields = ["metadata.labels", "metadata.annotations", "metadata.name", "metadata.labels['app']"]
    items: list[JSON] = [
        {"path": str(index), "fieldRef": {"fieldPath": path}} for index, path in enumerate(fields)
    ]
    limit = {"containerName": "main", "resource": "limits.memory", "divisor": "1Mi"}
    items.append({"path": "memory", "resourceFieldRef": limit})
    found = run(
        node,
        namespace,
        {"name": "d", "downwardAPI": {"items": items}},
        mounts=[mount("d", "/d")],
        labels={"app": "x", "b": 'q"uote'.replace('"', "-")},
        annotations={"note": 'say "hi"\nthere'},
        container={"resources": {"limits": {"memory": "64Mi"}}},
    )
    assert sh(node, found, "cat /d/0") == 'app="x"\nb="q-uote"'
    assert 'note="say \\"hi\\"\\nthere"' in sh(node, found, "cat /d/1").splitlines()
    assert sh(node, found, "cat /d/2; echo; cat /d/3; echo; cat /d/memory") == "p\nx\n64"


def test_projected_with_a_token(node: Node, namespace: str) -> None:
    create(node, "configmaps", namespace, "cfg", data={"a": "one"})
    create(node, "secrets", namespace, "s", data={"k": base64.b64encode(b"hush").decode()})
    field = {"path": "n", "fieldRef": {"fieldPath": "metadata.namespace"}}
    sources: list[JSON] = [
        {"configMap": {"name": "cfg"}},
        {"secret": {"name": "s", "items": [{"key": "k", "path": "sub/k"}]}},
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 600, "audience": "me"}},
        {"downwardAPI": {"items": [field]}},
    ]
    found = run(
        node,
        namespace,
        {"name": "p", "projected": {"sources": sources}},
        mounts=[mount("p", "/p")],
        securityContext={"runAsUser": 1000, "fsGroup": 2000},
    )
    assert sh(node, found, "cat /p/a /p/sub/k /p/n") == f"onehush{namespace}"
    assert sh(node, found, "stat -L -c '%a %u %g' /p/token /p/a") == "640 1000 2000\n644 0 2000\n"
    token = sh(node, found, "cat /p/token")
    claims = node.api.call(lambda registry: registry.authenticate_token(token, ("me",)))
    assert claims is not None
    assert not any(token in line for line in node.log_lines())


def test_empty_dir(node: Node, namespace: str) -> None:
    found = run(
        node,
        namespace,
        {"name": "disk", "emptyDir": {}},
        {"name": "mem", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        mounts=[mount("disk", "/disk"), mount("mem", "/mem"), mount("disk", "/ro", readOnly=True)],
        securityContext={"runAsUser": 1000, "fsGroup": 2000},
    )
    assert sh(node, found, "stat -c '%a %g' /disk; touch /disk/x; stat -c %g /ro/x") == (
        "2777 2000\n2000\n"
    )
    assert sh(node, found, "stat -f -c %T /mem; df -k /mem | tail -1 | awk '{print $2}'") == (
        "tmpfs\n1024\n"
    )
    code, _ = node.exec(found, "dd", "if=/dev/zero", "of=/mem/big", "bs=1M", "count=2")
    assert code != 0
    code, stated = node.exec(found, "touch", "/ro/y")
    assert code != 0
    assert "Read-only" in stated


def test_host_path(node: Node, namespace: str) -> None:
    base = node.directory / f"host-{namespace}"
    found = run(
        node,
        namespace,
        {"name": "d", "hostPath": {"path": str(base / "a/b"), "type": "DirectoryOrCreate"}},
        {"name": "f", "hostPath": {"path": "/etc/hostname", "type": "File"}},
        mounts=[mount("d", "/d"), mount("f", "/f")],
    )
    sh(node, found, "echo hi > /d/x")
    assert (base / "a/b/x").read_text() == "hi\n"
    assert (base / "a/b").stat().st_mode & 0o777 == 0o755
    assert sh(node, found, "cat /f") == Path("/etc/hostname").read_text()


def test_hosts_file(node: Node, namespace: str) -> None:
    alias = {"ip": "10.9.8.7", "hostnames": ["one", "two"]}
    found = run(node, namespace, mounts=[], hostAliases=[alias], hostname="h", subdomain="s")
    address = node.pod(namespace, "p")["status"]["podIP"]
    lines = sh(node, found, "cat /etc/hosts").splitlines()
    assert lines[0] == "# Kubernetes-managed hosts file."
    assert lines[-3:] == ["", "# Entries added by HostAliases.", "10.9.8.7\tone\ttwo"]
    assert lines[-4].startswith(f"{address}\th.s.{namespace}.svc.")


def replace(node: Node, kind: str, namespace: str, name: str, **fields: Any) -> None:
    """Change an object as the administrator."""
    found = node.api.find(kind, namespace, name)
    assert found is not None
    changed = {**found, **fields}
    node.api.call(lambda registry: registry.update(ADMIN, kind, changed, namespace))


def mounts_of(node: Node, uid: str) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line.split()[4] for line in lines if f"{node.root_dir}/pods/{uid}/" in line]


def test_changes_reach_running_containers(node: Node, namespace: str) -> None:
    create(node, "configmaps", namespace, "cfg", data={"a": "1", "gone": "x"})
    create(node, "secrets", namespace, "s", data={"k": base64.b64encode(b"1").decode()})
    field = {"fieldPath": "metadata.annotations['v']"}
    found = run(
        node,
        namespace,
        {"name": "c", "configMap": {"name": "cfg"}},
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "d", "downwardAPI": {"items": [{"path": "v", "fieldRef": field}]}},
        mounts=[
            mount("c", "/c"),
            mount("s", "/s"),
            mount("d", "/d"),
            mount("c", "/fixed", subPath="a"),
        ],
        annotations={"v": "1"},
    )
    uid = node.pod(namespace, "p")["metadata"]["uid"]
    volumes = node.root_dir / "pods" / uid / "volumes"

    def until_changed(path: str) -> None:
        """Sooner than the next periodic sync, which is a minute later."""
        node.until(lambda: (volumes / path).read_text() == "2", path, namespace, "p")

    replace(node, "configmaps", namespace, "cfg", data={"a": "2", "new": "y"})
    until_changed("kubernetes.io~configmap/c/a")
    replace(node, "secrets", namespace, "s", data={"k": base64.b64encode(b"2").decode()})
    until_changed("kubernetes.io~secret/s/k")
    node.kubectl("annotate", "pod", "p", "v=2", "--overwrite", namespace=namespace)
    until_changed("kubernetes.io~downward-api/d/v")
    assert sh(node, found, "cat /c/a /c/new /s/k /d/v; ls /c") == "2y22a\nnew\n"
    assert sh(node, found, "cat /fixed") == "1"


def test_the_agent_is_killed(node: Node, namespace: str) -> None:
    create(node, "configmaps", namespace, "cfg", data={"a": "1"})
    create(node, "secrets", namespace, "s", data={"k": base64.b64encode(b"hush").decode()})
    found = run(
        node,
        namespace,
        {"name": "c", "configMap": {"name": "cfg"}},
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "e", "emptyDir": {"medium": "Memory"}},
        mounts=[
            mount("c", "/c"),
            mount("s", "/s"),
            mount("e", "/e"),
            mount("e", "/sub", subPath="deep/er"),
        ],
    )
    sh(node, found, "echo kept > /e/file; echo too > /sub/file")
    uid = node.pod(namespace, "p")["metadata"]["uid"]
    before = mounts_of(node, uid)
    version = (node.root_dir / f"pods/{uid}/volumes/kubernetes.io~configmap/c/..data").readlink()
    node.kill()
    replace(node, "secrets", namespace, "s", data={"k": base64.b64encode(b"new").decode()})
    node.start_agent()
    node.until(lambda: sh(node, found, "cat /s/k") == "new", "the new secret", namespace, "p")
    assert mounts_of(node, uid) == before
    link = node.root_dir / f"pods/{uid}/volumes/kubernetes.io~configmap/c/..data"
    assert link.readlink() == version
    assert sh(node, found, "cat /e/file /sub/file /e/deep/er/file") == "kept\ntoo\ntoo\n"
    assert container_status(node.pod(namespace, "p"))["restartCount"] == 0
