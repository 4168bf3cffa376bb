"""The registry's verbs: stored objects, refusals and messages."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from kubeletpy_up.errors import ApiError
from kubeletpy_up.registry import deletion
from kubeletpy_up.registry.reading import ListOptions
from kubeletpy_up.requests import ADMIN, DeleteOptions, WriteOptions
from tests.kit.clocks import START, SetClock
from tests.kit.embedded import NODE, bound_pod, make_registry, node, pod, refusal


def _named(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **fields}


def test_create_sets_fields_of_the_server() -> None:
    registry = make_registry()
    supplied = pod("web")
    made = registry.create(
        ADMIN,
        "pods",
        {**supplied, "status": {"phase": "Running"}, "metadata": {"name": "web", "uid": "mine"}},
        "default",
    )
    meta = made["metadata"]
    assert (made["kind"], made["apiVersion"]) == ("Pod", "v1")
    assert meta["uid"] != "mine" and len(meta["uid"]) == 36
    assert meta["creationTimestamp"] == "2023-11-14T22:13:20Z"
    assert (meta["generation"], meta["namespace"]) == (1, "default")
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert made["spec"]["serviceAccountName"] == "default"
    assert supplied == pod("web"), "the caller's object must stay as it was"


def test_generate_name_and_dry_run() -> None:
    registry = make_registry()
    before = registry.store.revision
    obj = {"metadata": {"generateName": "web-"}, **{k: pod()[k] for k in ("spec",)}}
    dry = registry.create(ADMIN, "pods", obj, "default", options=WriteOptions(dry_run=True))
    assert dry["metadata"]["name"].startswith("web-") and len(dry["metadata"]["name"]) == 9
    assert registry.store.revision == before
    names = {registry.create(ADMIN, "pods", obj, "default")["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20


@pytest.mark.parametrize(
    ("obj", "namespace", "code", "reason", "message"),
    [
        (
            {"metadata": {"name": "a", "resourceVersion": "1"}},
            "default",
            500,
            "",
            "resourceVersion should not be set",
        ),
        (["a"], "default", 400, "BadRequest", "ServiceAccount"),
    ],
)
def test_create_refusals(obj: Any, namespace: str, code: int, reason: str, message: str) -> None:
    error = refusal(make_registry().create, ADMIN, "serviceaccounts", obj, namespace)
    assert (error.code, error.reason) == (code, reason)
    assert message in error.message
    assert error.status()["kind"] == "Status"


@pytest.mark.parametrize("version", ["", "0", "v1", "-1", str(1 << 64)])
def test_a_version_that_no_object_has_is_ignored_on_create(version: str) -> None:
    obj = {"metadata": {"name": "a", "resourceVersion": version}}
    made = make_registry().create(ADMIN, "serviceaccounts", obj, "default")
    assert made["metadata"]["resourceVersion"] not in ("", "0", "v1")


def test_pods_need_the_objects_that_they_name() -> None:
    registry = make_registry()
    for spec, message in (
        ({"serviceAccountName": "bob"}, 'serviceaccount "bob" not found'),
        ({"runtimeClassName": "kata"}, 'RuntimeClass "kata" not found'),
        ({"priorityClassName": "vip"}, "no PriorityClass with name vip"),
    ):
        error = refusal(registry.create, ADMIN, "pods", pod("a", **spec), "default")
        assert (error.code, message in error.message) == (403, True)
    classes = {"handler": "kata", "overhead": {"podFixed": {"cpu": "250m"}}}
    registry.create(ADMIN, "runtimeclasses", _named("kata", **classes))
    made = registry.create(
        ADMIN,
        "pods",
        pod("a", runtimeClassName="kata", priorityClassName="system-node-critical"),
        "default",
    )
    assert made["spec"]["overhead"] == {"cpu": "250m"}
    assert made["spec"]["priority"] == 2_000_001_000


def test_pull_secrets_come_from_the_account_and_tokens_are_optional() -> None:
    registry = make_registry()
    patch = {"imagePullSecrets": [{"name": "reg"}]}
    registry.patch(ADMIN, "serviceaccounts", "default", patch, "default")
    made = registry.create(ADMIN, "pods", pod("a"), "default")
    assert made["spec"]["imagePullSecrets"] == [{"name": "reg"}]
    assert "volumes" not in made["spec"]
    registry.service_account_volumes = True
    made = registry.create(ADMIN, "pods", pod("b"), "default")
    assert made["spec"]["volumes"][0]["name"].startswith("kube-api-access-")


def test_updates_check_version_and_uid_and_keep_fields_of_the_server() -> None:
    registry = make_registry()
    made = registry.create(ADMIN, "configmaps", _named("c", data={"a": "1"}), "default")
    stale = {**made, "data": {"a": "2"}}
    changed = registry.update(ADMIN, "configmaps", stale, "default")
    assert changed["data"] == {"a": "2"}
    error = refusal(registry.update, ADMIN, "configmaps", stale, "default")
    assert (error.code, error.reason) == (409, "Conflict")
    assert error.message.startswith('Operation cannot be fulfilled on configmaps "c":')
    other = {"metadata": {"name": "c", "uid": "another"}, "data": {}}
    assert refusal(registry.update, ADMIN, "configmaps", other, "default").code == 409
    unconditional = registry.update(ADMIN, "configmaps", _named("c", data={}), "default")
    for key in ("uid", "creationTimestamp", "namespace"):
        assert unconditional["metadata"][key] == made["metadata"][key]


def test_a_write_that_changes_nothing_is_no_write() -> None:
    registry = make_registry()
    registry.create(ADMIN, "configmaps", _named("c", data={"a": "1"}), "default")
    before = registry.store.revision
    registry.patch(ADMIN, "configmaps", "c", {"data": {"a": "1"}}, "default")
    registry.update(ADMIN, "configmaps", _named("c", data={"a": "1"}), "default")
    assert registry.store.revision == before


def test_a_status_patch_for_another_uid_conflicts() -> None:
    registry = make_registry()
    bound_pod(registry)
    patch = {"metadata": {"uid": "of-the-pod-before"}, "status": {"phase": "Failed"}}
    error = refusal(registry.patch, NODE, "pods", "web", patch, "default", subresource="status")
    assert (error.code, error.reason) == (409, "Conflict")
    assert "Precondition failed: UID" in error.message


@pytest.mark.parametrize(
    ("patch_type", "patch", "code"),
    [
        ("application/json-patch+json", [{"op": "add", "path": "data", "value": 1}], 400),
        ("application/json-patch+json", [{"op": "replace", "path": "", "value": 1}], 422),
    ],
)
def test_bad_patches(patch_type: str, patch: Any, code: int) -> None:
    registry = make_registry()
    registry.create(ADMIN, "configmaps", _named("c", data={"a": "1"}), "default")
    call = (ADMIN, "configmaps", "c", patch, "default")
    assert refusal(registry.patch, *call, patch_type=patch_type).code == code


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda r: r.get(ADMIN, "gadgets", "a"), 404),
        (lambda r: r.get(ADMIN, "pods", "a", "default", subresource="nope"), 404),
        (lambda r: r.delete(ADMIN, "namespaces", "default"), 403),
    ],
)
def test_refused_requests(call: Any, code: int) -> None:
    assert refusal(call, make_registry()).code == code


def test_the_largest_grace_period() -> None:
    clock = SetClock()
    registry = make_registry(clock=clock)
    bound_pod(registry)
    options = DeleteOptions(grace_period_seconds=2**62)
    meta = registry.delete(ADMIN, "pods", "web", "default", options)["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 2**62
    assert meta["deletionTimestamp"] == "2091-12-03T01:27:27Z"
    clock.time = START + 10
    options = DeleteOptions(grace_period_seconds=5)
    meta = registry.delete(ADMIN, "pods", "web", "default", options)["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 5
    assert meta["deletionTimestamp"] == "2023-11-14T22:13:25Z"


def test_the_pages_of_a_list_show_one_version() -> None:
    registry = make_registry()
    for name in "ab":
        registry.create(ADMIN, "configmaps", _named(name), "kube-public")
    first = registry.list(ADMIN, "configmaps", "kube-public", options=ListOptions(limit=1))
    registry.create(ADMIN, "configmaps", _named("c"), "kube-public")
    rest = ListOptions(limit=9, continue_=first["metadata"]["continue"])
    second = registry.list(ADMIN, "configmaps", "kube-public", options=rest)
    assert [item["metadata"]["name"] for item in second["items"]] == ["b", "kube-root-ca.crt"]


# -- namespaces ----------------------------------------------------------------------------------


def test_a_new_authority_reaches_the_namespaces_at_the_next_start(tmp_path: Path) -> None:
    file = str(tmp_path / "api.db")
    for authority in ("old", "old", "new"):
        registry = make_registry(file, root_ca=authority)
        found = registry.get(ADMIN, "configmaps", "kube-root-ca.crt", "default")
        assert found["data"] == {"ca.crt": authority}
        registry.close()


def test_a_namespace_is_deleted_with_its_content_and_pods_gracefully() -> None:
    registry = make_registry()
    registry.create(ADMIN, "namespaces", _named("x"))
    assert registry.find("serviceaccounts", "x", "default")
    assert registry.find("configmaps", "x", "kube-root-ca.crt")
    registry.create(ADMIN, "pods", pod("p"), "x")
    target = {"target": {"name": "n1"}}
    registry.create(ADMIN, "pods", target, "x", name="p", subresource="binding")
    marked = registry.delete(ADMIN, "namespaces", "x")
    assert marked["status"]["phase"] == "Terminating"
    assert registry.list(ADMIN, "configmaps", "x")["items"] == []
    killing = {
        **_named("p.1"),
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "x"},
        "reason": "Killing",
    }
    for who, resource, obj in ((ADMIN, "secrets", _named("s")), (NODE, "events", killing)):
        error = refusal(registry.create, who, resource, obj, "x")
        assert error.code == 403
        assert error.details["causes"][0]["reason"] == "NamespaceTerminating"
    registry.delete(NODE, "pods", "p", "x", DeleteOptions(grace_period_seconds=0))
    assert registry.find("namespaces", "", "x") is None
    registry.create(ADMIN, "namespaces", _named("x"))
    assert registry.find("serviceaccounts", "x", "default")


def test_objects_of_every_namespace_are_created_again() -> None:
    registry = make_registry()
    registry.delete(ADMIN, "serviceaccounts", "default", "default")
    assert registry.find("serviceaccounts", "default", "default")


def test_the_deletion_of_a_namespace_continues_after_a_restart(tmp_path: Path) -> None:
    registry = make_registry(str(tmp_path / "db"))
    registry.create(ADMIN, "namespaces", _named("x"))
    entry = registry.find("namespaces", "", "x")
    assert entry is not None
    meta = {**entry["metadata"], "deletionTimestamp": "2023-11-14T22:13:20Z"}
    registry.store.subscribe(lambda _: None)
    registry.store._listeners.clear()  # the process exits right after this write
    registry.store.put("namespaces", "", "x", {**entry, "metadata": meta})
    registry.store.close()
    again = make_registry(str(tmp_path / "db"))
    assert again.find("namespaces", "", "x") is None
    assert list(again.store.entries("configmaps", "x")) == []


# -- the rest ------------------------------------------------------------------------------------


def test_eviction_acts_as_delete() -> None:
    registry = make_registry()
    bound_pod(registry)
    for version in ("policy/v1", "policy/v1beta1"):
        eviction = {
            "apiVersion": version,
            "kind": "Eviction",
            "metadata": {"name": "web"},
            "deleteOptions": {"gracePeriodSeconds": 7},
        }
        registry.create(ADMIN, "pods", eviction, "default", name="web", subresource="eviction")
    evicted = registry.get(ADMIN, "pods", "web", "default")
    assert evicted["metadata"]["deletionGracePeriodSeconds"] == 7


def test_secrets_fold_string_data() -> None:
    registry = make_registry()
    obj = _named("s", data={"a": "MQ=="}, stringData={"a": "2", "b": "3"})
    made = registry.create(ADMIN, "secrets", obj, "default")
    assert "stringData" not in made
    assert {k: base64.b64decode(v) for k, v in made["data"].items()} == {"a": b"2", "b": b"3"}
    after = registry.patch(ADMIN, "secrets", "s", {"stringData": {"b": "4"}}, "default")
    assert base64.b64decode(after["data"]["b"]) == b"4"


def test_services_get_addresses_once() -> None:
    registry = make_registry(service_cidr="10.0.0.0/29")
    ports = [{"port": 80}]

    def make(name: str, **spec: Any) -> Any:
        obj = _named(name, spec={"ports": ports, **spec})
        return registry.create(ADMIN, "services", obj, "default")["spec"]

    assert registry.get(ADMIN, "services", "kubernetes", "default")["spec"]["clusterIP"] == (
        "10.0.0.1"
    )
    assert make("a")["clusterIP"] == "10.0.0.2"
    assert make("h", clusterIP="None")["clusterIP"] == "None"
    assert make("n", type="NodePort")["ports"][0]["nodePort"] == 30000
    for bad in ({"clusterIP": "10.0.0.2"}, {"clusterIP": "192.168.0.1"}):
        with pytest.raises(ApiError) as caught:
            make("b", **bad)
        assert caught.value.code == 422
    update = _named("a", spec={"ports": [{"port": 81}]})
    kept = registry.update(ADMIN, "services", update, "default")
    assert kept["spec"]["clusterIP"] == "10.0.0.2"
    for name in "cde":
        make(name)
    assert "range is full" in refusal(make, "f").message


def test_events_expire_after_an_hour_since_their_last_write() -> None:
    clock = SetClock()
    registry = make_registry(clock=clock)
    about = {"involvedObject": {"namespace": "default", "name": "p"}}
    for name in ("old", "renewed"):
        registry.create(ADMIN, "events", _named(name, **about), "default")
    clock.time += 3000
    registry.patch(ADMIN, "events", "renewed", {"count": 2}, "default")
    clock.time += 700
    assert registry.expire_events() == 1
    left = registry.list(ADMIN, "events")["items"]
    assert [event["metadata"]["name"] for event in left] == ["renewed"]


def test_a_lease_is_created_by_put() -> None:
    registry = make_registry()
    registry.update(NODE, "leases", _named("n1", spec={}), "kube-node-lease")
    assert registry.get(NODE, "leases", "n1", "kube-node-lease")["spec"] == {}


def test_new_nodes_keep_their_status_and_are_tainted_until_ready() -> None:
    registry = make_registry()
    made = registry.create(NODE, "nodes", node("n1"))
    assert made["status"]["capacity"]["cpu"] == "2"
    taints = made["spec"]["taints"]
    assert [taint["key"] for taint in taints] == ["node.kubernetes.io/not-ready"]


def test_objects_and_revision_survive_a_restart(tmp_path: Path) -> None:
    registry = make_registry(str(tmp_path / "db"))
    made = registry.create(ADMIN, "pods", pod("a"), "default")
    revision = registry.store.revision
    registry.store.close()
    again = make_registry(str(tmp_path / "db"))
    assert again.get(ADMIN, "pods", "a", "default") == made
    assert again.store.revision == revision, "a second start has nothing to write"
    event = again.watch(
        ADMIN, "pods", options=ListOptions(resource_version=str(revision - 1))
    ).take()[0]
    assert event.object["code"] == 410


# Finalizers that remain after a deletion, and whether the object is removed at once.


@pytest.mark.parametrize(
    ("finalizers", "propagation", "left"),
    [
        ([], "", []),
        (["x/y"], "", ["x/y"]),
        (["orphan"], "", ["orphan"]),
        ([], "Background", []),
        (["orphan", "x/y"], "Background", ["x/y"]),
        ([], "Orphan", ["orphan"]),
        (["orphan"], "Orphan", ["orphan"]),
        (["foregroundDeletion"], "Orphan", ["orphan"]),
        (["x/y"], "Foreground", ["x/y", "foregroundDeletion"]),
    ],
)
def test_finalizers_by_policy(finalizers: list[str], propagation: str, left: list[str]) -> None:
    obj = {"metadata": {"name": "a", "finalizers": finalizers}}
    assert deletion.finalizers_for(obj, propagation) == left
    decision = deletion.decide("configmaps", obj, DeleteOptions(propagation=propagation), 0.0)
    assert decision.remove == (not left)
    if left:
        assert decision.object["metadata"]["finalizers"] == left


def test_a_second_deletion_may_remove_an_owner() -> None:
    meta = {"name": "a", "finalizers": ["foregroundDeletion"]}
    going = {"metadata": {**meta, "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert deletion.decide("configmaps", going, DeleteOptions(propagation="Background"), 0.0).remove
    again = deletion.decide("configmaps", going, DeleteOptions(propagation="Foreground"), 0.0)
    assert again == deletion.Decision(False, going)
