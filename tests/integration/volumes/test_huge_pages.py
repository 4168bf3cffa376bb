"""Huge pages: the node's, a volume of them, and the refusal where there are none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.node.fixtures import MakeNode
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status
from tests.integration.volumes.test_kinds import mount, sh
from tools.env.containerd import Containerd

PAGES = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
DESIRED = 4

pytestmark = pytest.mark.needs("huge pages")


@pytest.fixture(scope="module")
def reserved() -> Iterator[None]:
    """A few huge pages of the machine, for as long as the tests run."""
    before = int(PAGES.read_text())
    PAGES.write_text(str(before + DESIRED))
    assert int(PAGES.read_text()) == before + DESIRED
    yield
    PAGES.write_text(str(before))


@pytest.fixture(scope="module")
def node2(reserved: None, make_node: MakeNode, session_containerd2: Containerd) -> Node:
    """A node that has huge pages."""
    node = make_node(session_containerd2)
    node.start()
    return node


def test_a_volume_of_huge_pages(node2: Node, namespace: str) -> None:
    amount = {"hugepages-2Mi": "4Mi", "memory": "64Mi"}
    main = container("main", FOREVER, volumeMounts=[mount("h", "/h"), mount("s", "/s")])
    main["resources"] = {"limits": amount}
    volumes = [
        {"name": "h", "emptyDir": {"medium": "HugePages"}},
        {"name": "s", "emptyDir": {"medium": "HugePages-2Mi"}},
    ]
    node2.apply(pod("p", main, volumes=volumes), namespace=namespace)
    found = container_status(node2.wait_running(namespace, "p"))["containerID"]
    table = sh(node2, found, "grep hugetlbfs /proc/mounts")
    kinds = {line.split()[1]: line.split()[2:] for line in table.splitlines()}
    assert set(kinds) == {"/h", "/s"}
    assert all("pagesize=2M" in options for _, options, *_ in kinds.values())
    capacity = (node2.api.find("nodes", "", node2.name) or {})["status"]["capacity"]
    assert capacity["hugepages-2Mi"] != "0"


def test_huge_pages_that_the_node_lacks(node2: Node, namespace: str) -> None:
    main = container("main", FOREVER, volumeMounts=[mount("h", "/h")])
    main["resources"] = {"limits": {"hugepages-1Gi": "1Gi", "memory": "64Mi"}}
    volumes = [{"name": "h", "emptyDir": {"medium": "HugePages-1Gi"}}]
    node2.apply(pod("big", main, nodeName=node2.name, volumes=volumes), namespace=namespace)
    found = node2.wait_phase(namespace, "big", "Failed")
    assert found["status"]["reason"] == "OutOfhugepages-1Gi"
