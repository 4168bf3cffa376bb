"""The API's objects that are kept for a start without it."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import replace
from kubeletpy.kubeapi.last_known import LastKnown, from_json, is_kept, to_json
from kubeletpy.kubeapi.protocol import (
    CLUSTERTRUSTBUNDLES,
    CONFIGMAPS,
    CSIDRIVERS,
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODS,
    SECRETS,
    SERVICEACCOUNTS,
    SERVICES,
    VOLUMEATTACHMENTS,
    Call,
    Resource,
)


def obj(name: str, namespace: str = "default", version: str = "1", **more: Any) -> JSON:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": version}
    return {"metadata": {**metadata, **({"namespace": namespace} if namespace else {})}, **more}


def note(known: LastKnown, resource: Resource, *objects: JSON) -> None:
    for each in objects:
        name, namespace = each["metadata"]["name"], each["metadata"].get("namespace", "")
        known.note((resource.plural, namespace, name), each)


def kept(known: LastKnown) -> set[str]:
    return {f"{plural}/{name}" for plural, _, name in known.needed()().objects}


def filled() -> LastKnown:
    known = LastKnown()
    volumes = [
        {"name": "a", "configMap": {"name": "settings"}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    note(known, PODS, obj("web", spec={"serviceAccountName": "robot", "volumes": volumes}))
    note(known, NODES, obj("n1", "", status={"images": [1], "addresses": [2]}))
    note(known, CONFIGMAPS, obj("settings"), obj("settings", "other"), obj("stale"))
    note(known, SECRETS, obj("driver", "storage"), obj("stale"))
    note(known, SERVICEACCOUNTS, obj("robot"))
    note(known, PERSISTENTVOLUMECLAIMS, obj("data", spec={"volumeName": "pv"}))
    csi = {"csi": {"nodePublishSecretRef": {"name": "driver", "namespace": "storage"}}}
    note(known, PERSISTENTVOLUMES, obj("pv", "", spec=csi), obj("old", ""))
    source = {"source": {"persistentVolumeName": "pv"}}
    note(known, VOLUMEATTACHMENTS, obj("csi-1", "", spec=source), obj("csi-2", "", spec={}))
    note(known, SERVICES, obj("api", spec={"clusterIP": "10.0.0.2", "selector": {}}))
    note(known, SERVICES, obj("far", "other", spec={}), obj("kubernetes", spec={}))
    note(known, CSIDRIVERS, obj("csi.example", "", spec={}))
    return known


def test_only_what_pods_need_is_kept() -> None:
    known = filled()
    selected = known.needed()().objects
    assert kept(known) == {
        "pods/web", "nodes/n1", "configmaps/settings", "secrets/driver", "serviceaccounts/robot",
        "persistentvolumeclaims/data", "persistentvolumes/pv", "volumeattachments/csi-1",
        "services/api", "services/kubernetes", "csidrivers/csi.example",
    }  # fmt: skip
    assert ("configmaps", "other", "settings") not in selected
    assert selected["services", "default", "api"]["spec"] == {"clusterIP": "10.0.0.2"}  # type: ignore[index]
    assert selected["nodes", "", "n1"]["status"] == {"addresses": [2]}  # type: ignore[index]


def test_nothing_is_kept_of_a_pod_that_was_removed() -> None:
    known = filled()
    known.note(("pods", "default", "web"), None)
    assert kept(known) == {"nodes/n1", "services/kubernetes", "csidrivers/csi.example"}


def test_a_claim_that_a_pod_owns_is_kept() -> None:
    known = filled()
    claim = obj("web-scratch")
    claim["metadata"]["ownerReferences"] = [{"uid": "uid-web"}]
    note(known, PERSISTENTVOLUMECLAIMS, claim)
    assert "persistentvolumeclaims/web-scratch" in kept(known)


def test_trust_bundles_are_kept_by_name_and_by_signer() -> None:
    known = filled()
    sources = [
        {"clusterTrustBundle": {"name": "root", "path": "a"}},
        {"clusterTrustBundle": {"signerName": "example.com/s", "path": "b"}},
    ]
    spec = {"volumes": [{"name": "t", "projected": {"sources": sources}}]}
    note(known, PODS, obj("trusts", spec=spec))
    signers: tuple[JSON, ...] = (
        {},
        {"signerName": "example.com/s"},
        {"signerName": "example.com/other"},
    )
    for name, signer in zip(("root", "by-signer", "unused"), signers, strict=True):
        note(known, CLUSTERTRUSTBUNDLES, obj(name, "", spec={"trustBundle": "PEM", **signer}))
    bundles = {each for each in kept(known) if each.startswith("clustertrustbundles")}
    assert bundles == {"clustertrustbundles/root", "clustertrustbundles/by-signer"}


def test_nothing_is_kept_of_another_version() -> None:
    older = replace(CLUSTERTRUSTBUNDLES, version="v1beta1")
    assert is_kept(Call("list", CLUSTERTRUSTBUNDLES)) and not is_kept(Call("list", older))


def test_absence_of_a_named_object_is_kept() -> None:
    known = filled()
    known.note(("configmaps", "default", "settings"), None)
    known.note(("configmaps", "default", "unnamed"), None)
    assert known.needed()().objects["configmaps", "default", "settings"] is None
    assert "configmaps/unnamed" not in kept(known)


def test_the_newest_status_of_a_pod_is_kept() -> None:
    known = filled()
    known.note_status("uid-web", {"phase": "Running"})
    pod = known.needed()().objects["pods", "default", "web"]
    assert pod is not None and pod["status"] == {"phase": "Running"}


def test_memory_is_freed_after_a_write() -> None:
    known = filled()
    captured, contents = known.contents.copy(), known.needed()()
    note(known, SECRETS, obj("newer"))
    known.note(("secrets", "default", "stale"), obj("stale", version="2"))
    known.forget(captured, contents)
    names = {name for plural, _, name in known.contents.objects if plural == "secrets"}
    assert names == {"driver", "newer", "stale"}
    assert ("services", "other", "far") in known.contents.objects  # a watch shows it only once


def test_a_change_is_noted_once() -> None:
    changes: list[int] = []
    known = LastKnown(lambda: changes.append(1))
    for version in ("1", "1", "2"):
        note(known, CONFIGMAPS, obj("settings", version=version))
    assert len(changes) == 2


def test_pages_of_a_list_replace_a_collection() -> None:
    known = LastKnown()
    note(known, PODS, obj("gone"))
    first = Call("list", PODS, field_selector="spec.nodeName=n1", limit=1)
    known.note_page(first, {"items": [obj("a")], "metadata": {"continue": "x"}})
    assert not known.knows(first)
    second = Call("list", PODS, field_selector="spec.nodeName=n1", limit=1, continue_="x")
    known.note_page(second, {"items": [obj("b")], "metadata": {}})
    assert [each["metadata"]["name"] for each in known.objects(first)] == ["a", "b"]


def test_the_text_of_the_contents_is_read_back() -> None:
    contents = filled().needed()()
    status = {"token": "t", "expirationTimestamp": "2026-01-01T00:00:00Z"}
    contents.tokens["request"] = "uid-web", {"status": status}
    again = from_json(to_json(contents))
    assert (again.objects, again.tokens, again.listed) == (
        contents.objects, contents.tokens, contents.listed,
    )  # fmt: skip


@pytest.mark.parametrize(
    "found",
    [
        None,
        {},
        {"listed": [], "objects": [["pods", "d", "x"]], "tokens": []},
        {"listed": [], "objects": [["pods", "d", "x", {"metadata": {"name": "y"}}]], "tokens": []},
        {"listed": [], "objects": [["widgets", "d", "x", {}]], "tokens": []},
        {"listed": [], "objects": [], "tokens": [["k", "u", {}]]},
        {"listed": [], "objects": [["pods", "d", "x", 5]], "tokens": []},
    ],
)
def test_other_contents_are_refused(found: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_json(found)
