"""Pods that an agent in a user namespace can't run are refused, with the field and the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.admission.user_namespace import UserNamespace, refused

ONE = UserNamespace([(0, 1)], [(0, 1)])
MANY = UserNamespace([(0, 65537)], [(0, 65537)])
LOGIN = UserNamespace([(0, 1)], [(0, 1)], owns_network=False)


def pod(container: dict[str, Any] | None = None, **spec: Any) -> Pod:
    declared: Any = {"name": "c", "image": "i", **(container or {})}
    document: Any = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": {"containers": [declared], **spec},
    }
    return Pod(document)


def secured(**context: Any) -> dict[str, Any]:
    return {"securityContext": context}


@pytest.mark.parametrize(
    ("rights", "container", "spec", "field"),
    [
        (ONE, {}, {}, ""),
        (ONE, secured(runAsUser=0, runAsGroup=0), secured(fsGroup=0), ""),
        (ONE, {}, secured(runAsUser=1000), "spec.securityContext.runAsUser 1000"),
        (ONE, {}, secured(runAsGroup=1), "spec.securityContext.runAsGroup 1"),
        (ONE, {}, secured(fsGroup=2000), "spec.securityContext.fsGroup 2000"),
        (ONE, {}, secured(supplementalGroups=[0, 7]), "supplementalGroups 7"),
        (ONE, secured(runAsUser=5), {}, "spec.containers{c}.securityContext.runAsUser 5"),
        (MANY, secured(runAsUser=65536), secured(fsGroup=2000), ""),
        (MANY, secured(runAsUser=65537), {}, "runAsUser 65537"),
        (MANY, {}, {"hostUsers": False}, "spec.hostUsers false"),
        (MANY, {}, {"hostUsers": True}, ""),
        (MANY, {"volumeDevices": [{"name": "disk", "devicePath": "/dev/x"}]}, {},
         "spec.containers{c}.volumeDevices disk"),
        (ONE, {"ports": [{"containerPort": 80, "hostPort": 80}]}, {}, ""),
        (LOGIN, {"ports": [{"containerPort": 80, "hostPort": 80}]}, {}, "ports.hostPort 80"),
        (LOGIN, {"ports": [{"containerPort": 80}, {"containerPort": 9, "hostPort": 8080}]}, {}, ""),
    ],
)  # fmt: skip
def test_what_needs_root_is_refused_for_that_pod(
    rights: UserNamespace, container: dict[str, Any], spec: dict[str, Any], field: str
) -> None:
    found = refused(pod(container, **spec), rights)
    if not field:
        assert found is None
        return
    assert found is not None
    assert found.reason is AdmissionReason.NEEDS_ROOT
    assert 'pod "shop/web" needs ' in found.message
    assert field in found.message
    assert "; " in found.message
