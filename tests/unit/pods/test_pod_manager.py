"""The desired pods, by uid and by full name."""

from __future__ import annotations

from kubeletpy.pods.pod import CONFIG_MIRROR, Pod
from kubeletpy.pods.pod_manager import PodManager, Resolved
from tests.kit.pods import make_pod, make_static, pod_object


def make_mirror(name: str = "static", uid: str = "mirror") -> Pod:
    obj = pod_object(name, uid)
    obj["metadata"]["annotations"] = {CONFIG_MIRROR: "hash"}
    return Pod(obj)


def test_ordinary_pods() -> None:
    pods = PodManager()
    web = make_pod()
    pods.put(web)
    assert pods.get("uid-web") is web
    assert pods.by_name("default", "web") is web
    assert pods.current("uid-web") == (web, None)
    assert pods.current("gone") is None
    newer = make_pod(labels={"a": "b"})
    pods.put(newer)
    assert pods.pods() == [newer]
    pods.remove(newer)
    assert (pods.pods(), pods.get("uid-web"), pods.by_name("default", "web")) == ([], None, None)


def test_a_pod_is_looked_up_by_name_uid_or_its_manifests_name() -> None:
    pods = PodManager()
    web, static = make_pod(), make_static("dns-n1", uid="s")
    for each in (web, static, make_mirror("dns-n1"), make_pod("cache-n1", "c")):
        pods.put(each)
    for name, found in {
        "web": web,
        "uid-web": web,
        "dns-n1": static,
        "dns": static,
        "s": static,
        "mirror": static,
        "cache": None,
        "n1": None,
        "": None,
    }.items():
        assert pods.lookup("default", name, "N1") is found, name
    assert pods.lookup("other", "web", "N1") is None
    assert pods.lookup("other", "uid-web", "N1") is web
    assert pods.namesakes("dns", "N1") == "; use default/dns-n1, which this node has"
    assert pods.namesakes("other", "N1") == ""


def test_a_pod_comes_before_a_static_pod_of_that_manifests_name() -> None:
    pods = PodManager()
    web = make_pod()
    for each in (make_static("web-n1", uid="s"), web):
        pods.put(each)
    assert pods.lookup("default", "web", "n1") is web


def test_static_and_mirror_are_joined_by_name() -> None:
    pods = PodManager()
    static, mirror = make_static(uid="s"), make_mirror()
    pods.put(mirror)
    assert pods.orphan_mirrors() == [mirror]
    assert pods.resolve(mirror).pod is None
    pods.put(static)
    assert pods.orphan_mirrors() == []
    assert pods.pods() == [static]
    assert pods.uids() == {"s"}
    assert pods.mirrors() == [mirror]
    assert pods.translate_uid("mirror") == "s"
    assert pods.translate_uid("s") == "s"
    assert pods.resolve(static) == Resolved(static, mirror, was_mirror=False)
    assert pods.resolve(mirror) == Resolved(static, mirror, was_mirror=True)
    pods.remove(mirror)
    assert pods.current("s") == (static, None)


def test_an_old_uid_does_not_take_a_newer_ones_name() -> None:
    pods = PodManager()
    old, new = make_static(uid="old"), make_static(uid="new")
    pods.put(old)
    pods.put(new)
    pods.remove(old)
    assert pods.by_name("default", "static") is new
