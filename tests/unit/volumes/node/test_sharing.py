"""The cost of many pods with the same objects for the API, from their start to their end."""

from __future__ import annotations

from kubeletpy.kubeapi.protocol import SECRETS
from tests.unit.volumes.node.test_node_volumes import CONFIG, HUSH, Node, node, pod_of
from tests.virtual_time import settle

__all__ = ["node"]
PODS = 100


async def test_a_hundred_pods_cost_one_watch_for_each_object(node: Node) -> None:
    node.api.put("cfg", data={"a": "1"})
    node.api.put("s", SECRETS, data={"k": HUSH})
    uids = [f"u{n}" for n in range(PODS)]
    secret = {"name": "s", "secret": {"secretName": "s"}}
    for uid in uids:
        await node.volumes.set_up(pod_of(CONFIG, secret, uid=uid))
    assert node.api.calls == {"watch": 2}
    for uid in uids[:-1]:
        await node.volumes.tear_down(uid)
    assert node.api.open_watches == 2
    await node.volumes.tear_down(uids[-1])
    await settle()
    assert node.api.open_watches == 0
    assert node.api.calls == {"watch": 2}
    assert node.mounts == []
