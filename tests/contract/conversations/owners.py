"""Garbage collection: what goes with its owner, before it, after it, or stays."""

from __future__ import annotations

from tests.contract.conversation import Step, delete, get, patch, post, watch
from tests.contract.conversations.objects import JSON, PODS, here

_MAPS = "/api/v1/namespaces/{ns}/configmaps"
_MAY_GO = [
    {"op": "test", "path": "/metadata/deletionGracePeriodSeconds", "value": 0},
    {"op": "remove", "path": "/metadata/finalizers"},
]
"""Takes the finalizers from an object that is being deleted, and from no other."""


def _owner(name: str, uid: str, kind: str = "ConfigMap", **more: object) -> JSON:
    return {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, **more}


def _map(name: str, *owners: JSON, finalizers: list[str] | None = None) -> Step:
    metadata: JSON = {"name": name, "ownerReferences": list(owners)}
    if finalizers:
        metadata["finalizers"] = finalizers
    key = f"uid_{name.replace('-', '_')}"
    return post(
        f"map {name}",
        _MAPS,
        {"metadata": metadata},
        keep={key: "metadata.uid", key.replace("uid", "rv"): "metadata.resourceVersion"},
    )


def _policy(policy: str) -> JSON:
    return {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}


def _is_removed(name: str, what: str) -> Step:
    return get(name, what, until=404)


STEPS = [
    # in the background, which is the default
    _map("a"),
    _map("a-1", _owner("a", "{uid_a}")),
    _map("a-2", _owner("a-1", "{uid_a_1}", controller=True, blockOwnerDeletion=True)),
    delete("by default", _MAPS + "/a"),
    _is_removed("its dependent goes", _MAPS + "/a-1"),
    _is_removed("and that one's", _MAPS + "/a-2"),
    # orphans
    _map("b"),
    _map("b-1", _owner("b", "{uid_b}")),
    delete("orphaning", _MAPS + "/b", _policy("Orphan")),
    _is_removed("the owner of orphans goes", _MAPS + "/b"),
    get("an orphan stays", _MAPS + "/b-1"),
    # in the foreground
    _map("c"),
    _map("c-1", _owner("c", "{uid_c}", blockOwnerDeletion=True), finalizers=["example.test/wait"]),
    delete("in the foreground", _MAPS + "/c", _policy("Foreground")),
    get("the owner waits", _MAPS + "/c"),
    delete("in the foreground again", _MAPS + "/c", _policy("Foreground")),
    # as soon as the garbage collector has deleted it
    patch("its dependent may go", _MAPS + "/c-1", _MAY_GO, "json", until=200),
    _is_removed("its dependent is gone", _MAPS + "/c-1"),
    _is_removed("then the owner goes", _MAPS + "/c"),
    _map("d"),
    _map("d-1", _owner("d", "{uid_d}"), finalizers=["example.test/wait"]),
    delete("in the foreground, nobody blocks", _MAPS + "/d", _policy("Foreground")),
    _is_removed("it does not wait for those that don't block", _MAPS + "/d"),
    patch("the rest may go", _MAPS + "/d-1", {"metadata": {"finalizers": None}}),
    _is_removed("the rest is gone", _MAPS + "/d-1"),
    _map("e"),
    delete("in the foreground without dependents", _MAPS + "/e", _policy("Foreground")),
    _is_removed("it goes", _MAPS + "/e"),
    # several owners, and wrong ones
    _map("f"),
    _map("g"),
    _map("fg", _owner("f", "{uid_f}"), _owner("g", "{uid_g}")),
    delete("one of two owners", _MAPS + "/f"),
    _is_removed("one of two owners is gone", _MAPS + "/f"),
    watch(
        "it forgets that one",
        _MAPS,
        events=1,
        fieldSelector="metadata.name=fg",
        resourceVersion="{rv_fg}",
    ),
    delete("the other owner", _MAPS + "/g", _policy("Background")),
    _is_removed("it goes with the other", _MAPS + "/fg"),
    _map("h"),
    _map("stray", _owner("h", "00000000-0000-0000-0000-000000000000")),
    _is_removed("an owner of another uid is none", _MAPS + "/stray"),
    _map("absent", _owner("no-such-map", "00000000-0000-0000-0000-000000000000")),
    _is_removed("an owner that is absent", _MAPS + "/absent"),
    # options
    delete("by query", _MAPS + "/h", query={"propagationPolicy": "Foreground"}),
    _is_removed("by query is gone", _MAPS + "/h"),
    _map("i"),
    delete("the old option", _MAPS + "/i", {"orphanDependents": False}),
    _map("j"),
    _map("j-1", _owner("j", "{uid_j}")),
    delete("the old option, orphans", _MAPS + "/j", {"orphanDependents": True}),
    _is_removed("orphaned the old way", _MAPS + "/j"),
    get("an orphan the old way", _MAPS + "/j-1"),
    delete("both options", _MAPS + "/j-1", {"orphanDependents": True, **_policy("Orphan")}),
    _map("k", finalizers=["orphan"]),
    _map("k-1", _owner("k", "{uid_k}")),
    delete("its own finalizer decides", _MAPS + "/k"),
    _is_removed("its orphaner is done", _MAPS + "/k"),
    get("orphaned by finalizer", _MAPS + "/k-1"),
    _map("l", finalizers=["foregroundDeletion"]),
    delete("another policy than its finalizer", _MAPS + "/l", _policy("Background")),
    _is_removed("the policy wins", _MAPS + "/l"),
    # pods
    _map("m"),
    post(
        "pod of a map",
        PODS,
        here("p", metadata={"ownerReferences": [_owner("m", "{uid_m}", blockOwnerDeletion=True)]}),
        keep={"rv_p": "metadata.resourceVersion"},
    ),
    delete("the owner of a pod", _MAPS + "/m", _policy("Foreground")),
    watch(
        "the pod is deleted with its grace",
        PODS,
        events=1,
        fieldSelector="metadata.name=p",
        resourceVersion="{rv_p}",
    ),
    delete("by its node", PODS + "/p", {"gracePeriodSeconds": 0}, by="node"),
    _is_removed("the pod's owner is gone", _MAPS + "/m"),
    post("orphaning pod", PODS, here("o")),
    delete("a pod, orphaning", PODS + "/o", {**_policy("Orphan"), "gracePeriodSeconds": 3}),
    # its finalizer may go before it or after
    delete("until it is gone", PODS + "/o", {"gracePeriodSeconds": 0}, by="node", until=404),
]
