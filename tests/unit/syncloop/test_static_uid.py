"""The uid of a static pod whose manifest has none: one table of evidence and outcome."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import CONFIG_HASH, CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE, Pod
from kubeletpy.runtime_manager.names import container_hash
from kubeletpy.syncloop.sources.manifest import Origin, static_pod
from kubeletpy.syncloop.sources.static_uid import RunningStaticPod, UidReason, choose_uid

ORIGIN = Origin("n", "/etc/kubernetes/manifests/etcd.yaml", is_file=True)
SEEN = 1000.0
UID = "0123456789abcdef0123456789abcdef"
CONTAINER = {"name": "etcd", "image": "etcd:3", "command": ["etcd", "--data-dir=/d"]}


def static(container: JSON | None = None, metadata: JSON | None = None, **spec: Any) -> Pod:
    manifest = {
        "metadata": {
            "name": "etcd",
            "labels": {"tier": "control-plane"},
            "annotations": {"a": "b"},
            **(metadata or {}),
        },
        "spec": {"containers": [CONTAINER | (container or {})], "hostNetwork": True, **spec},
    }
    return Pod(static_pod(manifest, ORIGIN))


POD = static()
RUNS = RunningStaticPod(
    UID,
    SEEN,
    {"tier": "control-plane"},
    {"a": "b", CONFIG_HASH: UID, CONFIG_SOURCE: "file", "runtime.example/x": "y"},
    {"etcd": container_hash(CONTAINER)},  # type: ignore[arg-type]
)


def mirror(pod: Pod = POD, uid: str = UID, **spec: Any) -> JSON:
    """The pod in the API, with the fields that the server adds and without those it drops."""
    reported = {**pod.spec, "priority": 2000001000, "preemptionPolicy": "PreemptLowerPriority"}
    annotations = {**pod.annotations, CONFIG_HASH: uid, CONFIG_MIRROR: uid, CONFIG_SEEN: "x"}
    return {
        "metadata": {"labels": {**pod.labels}, "annotations": annotations},
        "spec": {**reported, **spec},
    }


OLD, NEW = SEEN - 500, SEEN + 500
OTHER = "another-uid"
NO_WITNESS = "its mirror pod could not be read, and the file was written after it was configured"


@pytest.mark.parametrize(
    ("pod", "running", "evidence", "expected"),
    [
        (POD, [], {}, (POD.uid, "COMPUTED", "")),
        (POD, [], {"recorded": UID}, (UID, "COMPUTED", "")),
        (POD, [replace(RUNS, uid=POD.uid)], {}, (POD.uid, "OWN", "")),
        (POD, [RUNS, replace(RUNS, uid=POD.uid)], {"changed_at": OLD}, (POD.uid, "OWN", "")),
        (POD, [RUNS], {"recorded": UID}, (UID, "RECORDED", "")),
        (POD, [RUNS], {"recorded": OTHER, "changed_at": OLD}, (UID, "UNTOUCHED", "")),
        # one source of evidence is enough
        (POD, [RUNS], {"mirror": mirror()}, (UID, "MIRROR", "")),
        (POD, [RUNS], {"mirror": mirror(), "changed_at": NEW}, (UID, "MIRROR", "")),
        (POD, [RUNS], {"changed_at": OLD}, (UID, "UNTOUCHED", "")),
        (POD, [RUNS], {"mirror": mirror(uid=OTHER), "changed_at": OLD}, (UID, "UNTOUCHED", "")),
        (static(hostIPC=False), [RUNS], {"mirror": mirror()}, (UID, "MIRROR", "")),
        # admission has added something: the file decides
        (POD, [RUNS], {"mirror": mirror(hostPID=True), "changed_at": OLD}, (UID, "UNTOUCHED", "")),
        (
            POD,
            [RUNS],
            {"mirror": mirror(hostPID=True), "changed_at": NEW},
            (
                POD.uid,
                "UNPROVEN",
                "its mirror pod also has spec.hostPID, "
                "and the file was written after it was configured",
            ),
        ),
        # changed, whatever the modification time of the file
        (
            static({"command": ["etcd", "--data-dir=/e"]}),
            [RUNS],
            {"mirror": mirror(), "changed_at": OLD},
            (
                static({"command": ["etcd", "--data-dir=/e"]}).uid,
                "CHANGED",
                "spec.containers[0].command[1]",
            ),
        ),
        (
            static({"image": "etcd:4"}),
            [RUNS],
            {"changed_at": OLD},
            (static({"image": "etcd:4"}).uid, "CHANGED", "name or image of container etcd"),
        ),
        (
            static({"name": "other"}),
            [RUNS],
            {"changed_at": OLD},
            (static({"name": "other"}).uid, "CHANGED", "name or image of container etcd"),
        ),
        (
            static(metadata={"labels": {"tier": "x"}}),
            [RUNS],
            {"changed_at": OLD},
            (static(metadata={"labels": {"tier": "x"}}).uid, "CHANGED", "label tier"),
        ),
        (
            static(metadata={"annotations": {"a": "c"}}),
            [RUNS],
            {"changed_at": OLD},
            (static(metadata={"annotations": {"a": "c"}}).uid, "CHANGED", "annotation a"),
        ),
        # fields removed from the manifest, found through a mirror that still has them
        (
            static(metadata={"annotations": None}),
            [RUNS],
            {"mirror": mirror()},
            (
                static(metadata={"annotations": None}).uid,
                "UNPROVEN",
                "its mirror pod also has metadata.annotations.a, and the manifest is not a file",
            ),
        ),
        # no evidence
        (POD, [RUNS], {"changed_at": NEW}, (POD.uid, "UNPROVEN", NO_WITNESS)),
        (POD, [RUNS], {"changed_at": SEEN - 0.5}, (POD.uid, "UNPROVEN", NO_WITNESS)),
        (
            POD,
            [replace(RUNS, seen=0.0)],
            {"changed_at": OLD, "mirror": mirror(uid=OTHER)},
            (
                POD.uid,
                "UNPROVEN",
                "the mirror pod is that of another manifest, "
                "and its sandbox does not contain when it was configured",
            ),
        ),
        (
            POD,
            [replace(RUNS, annotations={**RUNS.annotations, CONFIG_SOURCE: "api"})],
            {"changed_at": OLD, "mirror": mirror()},
            (POD.uid, "UNPROVEN", "it is no static pod of source file"),
        ),
        (
            POD,
            [replace(RUNS, annotations={**RUNS.annotations, CONFIG_HASH: OTHER})],
            {"changed_at": OLD, "mirror": mirror()},
            (POD.uid, "UNPROVEN", "it is no static pod of source file"),
        ),
        (
            POD,
            [RUNS],
            {"mirror": {**mirror(), "spec": {"containers": 3}}},
            (
                POD.uid,
                "UNPROVEN",
                "its mirror pod also has a spec that can't be read, and the manifest is not a file",
            ),
        ),
    ],
)
def test_evidence_and_uid(
    pod: Pod, running: list[RunningStaticPod], evidence: Any, expected: tuple[str, str, str]
) -> None:
    found = choose_uid(pod, "file", running, **evidence)
    uid, reason, detail = expected
    assert (found.uid, found.reason, found.detail) == (uid, UidReason[reason], detail)
