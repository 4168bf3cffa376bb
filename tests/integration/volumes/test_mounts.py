"""Mounts of volumes: parts of them, propagation, read-only, images, and attempts to break out."""

from __future__ import annotations

import base64

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.node.machine import Node
from tests.integration.node.machine_side import program
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status, status, terminated, waiting
from tests.integration.volumes.test_kinds import create, mount, run, sh
from tools.env.images import BUSYBOX


def test_sub_paths(node: Node, namespace: str) -> None:
    create(node, "configmaps", namespace, "cfg", data={"a": "one"})
    make = container("init", "echo made > /e/file; mkdir /e/dir", volumeMounts=[mount("e", "/e")])
    found = run(
        node,
        namespace,
        {"name": "e", "emptyDir": {}},
        {"name": "c", "configMap": {"name": "cfg"}},
        mounts=[
            mount("e", "/e"),
            mount("e", "/file", subPath="file"),
            mount("e", "/made", subPath="not/there"),
            mount("e", "/expr", subPathExpr="of-$(WHO)"),
            mount("c", "/a", subPath="a"),
        ],
        container={"env": [{"name": "WHO", "value": "me"}]},
        initContainers=[make],
    )
    assert sh(node, found, "cat /file /a; ls /e") == "made\nonedir\nfile\nnot\nof-me\n"
    assert sh(node, found, "touch /made/x /expr/y; ls /e/not/there /e/of-me; stat -c %a /made") == (
        "/e/not/there:\nx\n\n/e/of-me:\ny\n777\n"
    )


def test_a_link_out_of_the_volume_is_refused(node: Node, namespace: str) -> None:
    link = container("init", "ln -s /etc /e/out", volumeMounts=[mount("e", "/e")])
    main = container("main", FOREVER, volumeMounts=[mount("e", "/x", subPath="out/hostname")])
    volumes = [{"name": "e", "emptyDir": {}}]
    node.apply(pod("p", main, volumes=volumes, initContainers=[link]), namespace=namespace)
    found = node.wait_waiting(namespace, "p", "CreateContainerConfigError", "main")
    stated = found["state"]["waiting"]["message"]
    assert stated.startswith('failed to prepare subPath for volumeMount "e" of container "main": ')
    assert "leads out of the volume" in stated


@pytest.mark.parametrize("kind", ["emptyDir", "hostPath"])
def test_a_container_that_swaps_a_directory_for_a_link_reaches_nothing(
    node: Node, namespace: str, kind: str
) -> None:
    """CVE-2017-1002101: one container changes the path while another one is started on it."""
    swap = "mkdir /e/a; ln -s / /e/b; while :; do mv /e/a /e/t; mv /e/b /e/a; mv /e/t /e/b; done"
    racer = container("racer", swap, volumeMounts=[mount("e", "/e")])
    check = "[ -e /x/etc/hostname ] && echo REACHED THE HOST && exit 7; exit 1"
    victims = [
        container(f"victim{n}", check, volumeMounts=[mount("e", "/x", subPath="a")])
        for n in range(4)
    ]
    names = {each["name"] for each in victims}
    path = {"path": str(node.directory / namespace), "type": "DirectoryOrCreate"}
    volumes = [{"name": "e", kind: path if kind == "hostPath" else {}}]
    node.apply(pod("p", racer, *victims, volumes=volumes), namespace=namespace)

    def all_tried() -> bool:
        """Whether each victim has ended more than once, or waits because it was refused."""
        found = status(node.pod(namespace, "p")).get("containerStatuses") or []
        for entry in found:
            for state in ("state", "lastState"):
                assert terminated(entry, state).get("exitCode") != 7, entry
        tried = {
            each["name"]: each["restartCount"] or waiting(each).get("message") for each in found
        }
        return tried.keys() >= names and all(tried[each] for each in names)

    node.until(all_tried, "tries of all victims", namespace, "p")
    uid = node.pod(namespace, "p")["metadata"]["uid"]
    base = node.root_dir / "pods" / uid / "volume-subpaths"
    assert not list(base.glob("e/*/*/etc/hostname"))


def test_propagation(node: Node, namespace: str) -> None:
    host = {"securityContext": {"privileged": True}}
    giver = container(
        "giver",
        "mkdir /e/m; mount -t tmpfs none /e/m; echo seen > /e/m/x; " + FOREVER,
        volumeMounts=[mount("e", "/e", mountPropagation="Bidirectional")],
        **host,
    )
    taker = container(
        "taker",
        FOREVER,
        volumeMounts=[mount("e", "/e", mountPropagation="HostToContainer"), mount("e", "/private")],
    )
    volumes = [{"name": "e", "emptyDir": {}}]
    node.apply(pod("p", taker, giver, volumes=volumes), namespace=namespace)
    found = node.wait_running(namespace, "p")
    taker_id = container_status(found, "taker")["containerID"]
    node.until(
        lambda: node.exec(taker_id, "cat", "/e/m/x") == (0, "seen\n"), "the mount", namespace, "p"
    )


def test_mounts_below_the_root_directory_reach_node_and_pods(node: Node, namespace: str) -> None:
    """A storage driver needs this: from a pod it mounts below the kubelet's directory."""
    shared = node.root_dir / "plugins" / namespace
    driver = container(
        "driver",
        "mkdir /k/m; mount -t tmpfs none /k/m; echo driver > /k/m/x; " + FOREVER,
        volumeMounts=[mount("k", "/k", mountPropagation="Bidirectional")],
        securityContext={"privileged": True},
        lifecycle={"preStop": {"exec": {"command": ["umount", "/k/m"]}}},
    )
    user = container(
        "user",
        FOREVER,
        volumeMounts=[
            mount("k", "/k", mountPropagation="HostToContainer"),
            mount("k", "/private", mountPropagation="None"),
        ],
    )
    source = {"hostPath": {"path": str(shared), "type": "DirectoryOrCreate"}}
    node.apply(pod("p", user, driver, volumes=[{"name": "k", **source}]), namespace=namespace)
    found = node.wait_running(namespace, "p")
    user_id = container_status(found, "user")["containerID"]
    seen = shared / "m/x"
    node.until(lambda: seen.read_text() == "driver\n", "the driver's mount", namespace, "p")
    assert node.exec(user_id, "cat", "/k/m/x") == (0, "driver\n")
    assert node.exec(user_id, "cat", "/private/m/x")[0] != 0
    (shared / "n").mkdir()
    program("mount", "-t", "tmpfs", "none", shared / "n")
    try:
        (shared / "n/y").write_text("node")
        assert node.exec(user_id, "cat", "/k/n/y") == (0, "node")
        assert node.exec(user_id, "ls", "/private/n") == (0, "")
    finally:
        program("umount", shared / "n")


def test_recursive_read_only(node: Node, namespace: str) -> None:
    """A file system that is mounted below a read-only volume."""
    host = node.directory / namespace
    (host / "below").mkdir(parents=True)
    volumes = [{"name": "h", "hostPath": {"path": str(host)}}]
    requested = {"plain": "Disabled", "perhaps": "IfPossible", "surely": "Enabled"}
    program("mount", "-t", "tmpfs", "none", host / "below")
    try:
        for name, how in requested.items():
            spec = mount("h", "/h", readOnly=True, recursiveReadOnly=how)
            main = container("main", FOREVER, volumeMounts=[spec])
            node.apply(pod(name, main, volumes=volumes), namespace=namespace)
        able = node.containerd.abilities["recursive read-only mounts"]
        if able:
            assert not writes(node, namespace, "surely", "/h/below/x")
        else:
            found = node.wait_waiting(namespace, "surely", "CreateContainerConfigError")
            assert found["state"]["waiting"]["message"] == (
                'volumeMount "h": recursiveReadOnly: the container runtime does not support it'
            )
        assert writes(node, namespace, "perhaps", "/h/below/x") is not able
        assert writes(node, namespace, "plain", "/h/below/x")
        assert not writes(node, namespace, "plain", "/h/x")
        statuses = container_status(node.pod(namespace, "perhaps"))["volumeMounts"]
        stated = {entry["name"]: entry.get("recursiveReadOnly") for entry in statuses}
        assert stated["h"] == ("Enabled" if able else "Disabled")
        for name in requested:
            node.api.delete("pods", namespace, name, grace=1)
            node.wait_removed(namespace, name)
    finally:
        program("umount", host / "below")


def writes(node: Node, namespace: str, name: str, path: str) -> bool:
    """Whether a pod's container can make a file."""
    found = node.wait_running(namespace, name)
    return node.exec(container_status(found)["containerID"], "touch", path)[0] == 0


def test_image_volume(node: Node, namespace: str) -> None:
    source = {"reference": BUSYBOX, "pullPolicy": "IfNotPresent"}
    main = container("main", FOREVER, volumeMounts=[mount("i", "/i")])
    part = container("main", FOREVER, volumeMounts=[mount("i", "/i", subPath="bin")])
    volumes = [{"name": "i", "image": source}]
    node.apply(pod("p", main, volumes=volumes), namespace=namespace)
    node.apply(pod("part", part, volumes=volumes), namespace=namespace)
    if not node.containerd.abilities["image volumes"]:

        def has_message(found: JSON) -> bool:
            message = waiting(container_status(found)).get("message", "")
            return "has no image volumes" in message

        node.wait_pod(namespace, "p", has_message, "waiting, with the reason")
        return
    main_id = container_status(node.wait_running(namespace, "p"))["containerID"]
    assert sh(node, main_id, "ls /i/bin/busybox") == "/i/bin/busybox\n"
    code, stated = node.exec(main_id, "touch", "/i/x")
    assert code != 0
    assert "Read-only" in stated
    if node.containerd.abilities["parts of image volumes"]:
        part_id = container_status(node.wait_running(namespace, "part"))["containerID"]
        assert sh(node, part_id, "ls /i/busybox") == "/i/busybox\n"
    else:  # a runtime without support for parts would mount the whole
        refused = node.wait_waiting(namespace, "part", "CreateContainerError", "main")
        assert "can not mount a part of an image" in refused["state"]["waiting"]["message"]
    assert node.metric("kubelet_image_volume_mounted_succeed_total") >= 1


def test_environment_from_objects_and_files(node: Node, namespace: str) -> None:
    create(node, "configmaps", namespace, "cfg", data={"a": "one", "b": "two"})
    create(node, "secrets", namespace, "s", data={"k": base64.b64encode(b"hush").decode()})
    write = container(
        "init", "echo \"KEY='from a file'\" > /e/env", volumeMounts=[mount("e", "/e")]
    )
    env = [
        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {
            "name": "F",
            "valueFrom": {"fileKeyRef": {"volumeName": "e", "path": "env", "key": "KEY"}},
        },
        {
            "name": "NO",
            "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y", "optional": True}},
        },
    ]
    main = container("main", FOREVER, env=env)
    main["envFrom"] = [{"prefix": "P_", "configMapRef": {"name": "cfg"}}]
    volumes = [{"name": "e", "emptyDir": {}}]
    node.apply(pod("p", main, volumes=volumes, initContainers=[write]), namespace=namespace)
    found = node.wait_running(namespace, "p")
    stated = sh(node, container_status(found)["containerID"], "echo $P_a $P_b $S $F ${NO-none}")
    assert stated == "one two hush from a file none\n"
