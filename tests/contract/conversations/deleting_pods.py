"""Pods that are deleted: grace, preconditions, finalizers, eviction."""

from __future__ import annotations

from tests.contract.conversation import delete, get, patch, post
from tests.contract.conversations.objects import PODS, here, mirror, pod

_OTHER_UID = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
_EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction"}


def _eviction(name: str, **options: object) -> dict[str, object]:
    return {
        **_EVICTION,
        "metadata": {"name": name},
        **({"deleteOptions": options} if options else {}),
    }


STEPS = [
    get("the node", "/api/v1/nodes/{node}", by="node", keep={"node_uid": "metadata.uid"}),
    post("create", PODS, here("p"), keep={"uid": "metadata.uid", "rv": "metadata.resourceVersion"}),
    delete("another uid", PODS + "/p", _OTHER_UID),
    delete("another version", PODS + "/p", {"preconditions": {"resourceVersion": "1"}}),
    delete("negative grace", PODS + "/p", {"gracePeriodSeconds": -5}, query={"dryRun": "All"}),
    delete("bad policy", PODS + "/p", {"propagationPolicy": "Sideways"}),
    delete("bad body", PODS + "/p", b"{"),
    delete("other kind of body", PODS + "/p", {"apiVersion": "v1", "kind": "Pod"}),
    delete("dry run", PODS + "/p", {"dryRun": ["All"]}),
    delete(
        "with grace", PODS + "/p", {"gracePeriodSeconds": 20, "preconditions": {"uid": "{uid}"}}
    ),
    delete("again", PODS + "/p", {"gracePeriodSeconds": 20}),
    delete("longer", PODS + "/p", {"gracePeriodSeconds": 60}),
    delete("shorter", PODS + "/p", {"gracePeriodSeconds": 10}),
    delete("shorter by query", PODS + "/p", query={"gracePeriodSeconds": 5}),
    get("it stays", PODS + "/p"),
    patch(
        "a finalizer comes too late",
        PODS + "/p",
        {"metadata": {"finalizers": ["example.test/late"]}},
    ),
    patch("status goes on", PODS + "/p/status", {"status": {"message": "going"}}, by="node"),
    delete("by another node", PODS + "/p", {"gracePeriodSeconds": 0}, by="other"),
    delete(
        "by its node, another uid", PODS + "/p", {"gracePeriodSeconds": 0, **_OTHER_UID}, by="node"
    ),
    delete(
        "by its node",
        PODS + "/p",
        {"gracePeriodSeconds": 0, "preconditions": {"uid": "{uid}"}},
        by="node",
    ),
    delete("when gone", PODS + "/p", {"gracePeriodSeconds": 0}, by="node"),
    get("gone", PODS + "/p", by="node", until=403),
    post("unbound", PODS, pod("u", schedulerName="nobody")),
    delete("unbound goes at once", PODS + "/u"),
    get("unbound is gone", PODS + "/u"),
    post("default grace", PODS, here("d", terminationGracePeriodSeconds=7)),
    delete("by default", PODS + "/d"),
    delete("by force", PODS + "/d", {"gracePeriodSeconds": 0}),
    get("by force is gone", PODS + "/d"),
    post("grace of zero", PODS, here("z", terminationGracePeriodSeconds=0)),
    delete("with grace of zero", PODS + "/z"),
    get("with grace of zero it is gone", PODS + "/z"),
    post("ended", PODS, here("e")),
    patch("it ends", PODS + "/e/status", {"status": {"phase": "Failed"}}, by="node"),
    delete("ended goes at once", PODS + "/e"),
    get("ended is gone", PODS + "/e"),
    post("kept", PODS, here("k", metadata={"finalizers": ["example.test/keep"]})),
    delete("kept, deleted", PODS + "/k", {"gracePeriodSeconds": 3}),
    delete("kept, by its node", PODS + "/k", {"gracePeriodSeconds": 0}, by="node"),
    get("kept is there", PODS + "/k"),
    patch("kept let go", PODS + "/k", {"metadata": {"finalizers": None}}),
    get("kept is gone", PODS + "/k"),
    post("mirror", PODS, mirror("m"), by="node"),
    delete("mirror by an administrator", PODS + "/m"),
    get("mirror stays", PODS + "/m"),
    delete("mirror by its node", PODS + "/m", {"gracePeriodSeconds": 0}, by="node"),
    post("to evict", PODS, here("v", terminationGracePeriodSeconds=9)),
    post("evicted by a node that may not", PODS + "/v/eviction", _eviction("v"), by="other"),
    post("evicted, other name", PODS + "/v/eviction", _eviction("w")),
    post("evicted, dry run", PODS + "/v/eviction", _eviction("v"), query={"dryRun": "All"}),
    post("evicted", PODS + "/v/eviction", _eviction("v", gracePeriodSeconds=4)),
    get("evicted is going", PODS + "/v"),
    post("evicted again", PODS + "/v/eviction", _eviction("v"), by="node"),
    post("evicted, not there", PODS + "/none/eviction", _eviction("none")),
    delete("all of a selector", PODS, query={"labelSelector": "none=here"}),
    delete("all", PODS, {"gracePeriodSeconds": 0}),
    get("none is left", PODS),
]
