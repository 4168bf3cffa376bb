"""The message of an ended container is what it wrote into the agent's file, nothing else."""

from __future__ import annotations

from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import container_status
from tests.integration.volumes.test_kinds import mount


def test_a_host_path_at_the_path_of_the_message_shows_no_file_of_root(
    node2: Node, namespace: str
) -> None:
    """The parent of the mounted file becomes a link to where only root can read."""
    outside, inside = node2.directory / "of-root", node2.directory / "of-the-pod"
    outside.mkdir()
    (outside / "file").touch(0o600)
    (outside / "file").write_text("hunter2")
    (inside / "sub").mkdir(parents=True)
    (inside / "sub" / "file").touch()
    swap = f"printf bye > /tmp/last; mv /d/sub /d/old && ln -s {outside} /d/sub; exit 1"
    main = container(
        "main",
        swap,
        terminationMessagePath="/tmp/last",
        volumeMounts=[mount("file", "/tmp/last"), mount("d", "/d")],
    )
    volumes = [
        {"name": "file", "hostPath": {"path": str(inside / "sub" / "file"), "type": "File"}},
        {"name": "d", "hostPath": {"path": str(inside)}},
    ]
    node2.apply(pod("p", main, volumes=volumes, restartPolicy="Never"), namespace=namespace)
    found = node2.wait_phase(namespace, "p", "Failed")
    assert (inside / "sub" / "file").read_text() == "hunter2", "the link is there"
    message = container_status(found)["state"]["terminated"].get("message", "")
    assert "hunter2" not in message
