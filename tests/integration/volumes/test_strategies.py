"""Changes of config maps that a real node notices without a watch."""

from __future__ import annotations

import pytest

from tests.integration.node.conftest import MakeNode
from tests.integration.volumes.test_kinds import create, mount, run, sh
from tests.integration.volumes.test_life import replace

HOUR = "node.alpha.kubernetes.io/ttl=3600"
VERSION = {"path": "v", "fieldRef": {"fieldPath": "metadata.annotations['v']"}}


@pytest.mark.parametrize(
    ("strategy", "containerd", "after_a_sync"),
    [("Cache", "session_containerd2", "1"), ("Get", "session_containerd16", "2")],
)
def test_changes_without_watches(
    strategy: str,
    containerd: str,
    after_a_sync: str,
    make_node: MakeNode,
    request: pytest.FixtureRequest,
) -> None:
    node = make_node(
        request.getfixturevalue(containerd),
        config={"configMapAndSecretChangeDetectionStrategy": strategy, "syncFrequency": "1s"},
    )
    node.start()
    node.kubectl("annotate", "node", node.name, HOUR)
    node.kubectl("create", "namespace", "one")
    create(node, "configmaps", "one", "cfg", data={"a": "1"})
    found = run(
        node,
        "one",
        {"name": "c", "configMap": {"name": "cfg"}},
        {"name": "d", "downwardAPI": {"items": [VERSION]}},
        mounts=[mount("c", "/c"), mount("d", "/d")],
        annotations={"v": "1"},
    )
    assert sh(node, found, "cat /c/a /d/v") == "11"
    replace(node, "configmaps", "one", "cfg", data={"a": "2"})
    node.kubectl("annotate", "pod", "p", "v=2", "--overwrite", namespace="one")
    node.until(lambda: sh(node, found, "cat /d/v") == "2", "a sync")
    assert sh(node, found, "cat /c/a") == after_a_sync
    node.kubectl("annotate", "node", node.name, HOUR.replace("3600", "0"), "--overwrite")
    node.until(lambda: sh(node, found, "cat /c/a") == "2", "the change")
    node.kubectl("delete", "pod", "p", "--grace-period=1", namespace="one")
