"""Faults by which an admitted pod does not start, and pods that no API server accepts."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.observe.foresee.faults import api_refusal, start_faults
from kubeletpy.observe.foresee.model import PresentImage
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.volumes.pod_volumes.planned import plan_volumes
from tests.kit.observe import container, pod

PRESENT = {"a:1": PresentImage(exists=True), "user:1": PresentImage(exists=True, user=7)}
ABSENT = PresentImage(exists=False)


def mounting(source: dict[str, Any], **mount: Any) -> dict[str, Any]:
    """The spec of a pod whose container mounts a volume."""
    mounts = [{"name": "v", "mountPath": "/v", **mount}]
    return {
        "containers": [container("a", volumeMounts=mounts)],
        "volumes": [{"name": "v", **source}],
    }


def of_container(**more: Any) -> dict[str, Any]:
    return {"containers": [container("a", **more)]}


def referring(**source: Any) -> dict[str, Any]:
    return of_container(env=[{"name": "X", "valueFrom": source}])


def context(**more: Any) -> dict[str, Any]:
    return of_container(securityContext=more)


FILE_KEY = {"volumeName": "v", "path": "f", "key": "k"}
GOOD: list[dict[str, Any]] = [
    of_container(),
    of_container(image="registry.example:5000/team/app@sha256:" + "a" * 64),
    referring(fieldRef={"fieldPath": "status.podIP"}),
    referring(resourceFieldRef={"resource": "limits.cpu"}),
    referring(configMapKeyRef={"name": "c", "key": "k"}),
    referring(secretKeyRef={"name": "c", "key": "k"}),
    of_container(envFrom=[{"configMapRef": {"name": "c"}}]),
    {
        "containers": [container("a", env=[{"name": "X", "valueFrom": {"fileKeyRef": FILE_KEY}}])],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
    context(runAsNonRoot=True, runAsUser=5),
    of_container(image="absent:1", securityContext={"runAsNonRoot": True}),
    of_container(image="user:1", securityContext={"runAsNonRoot": True}),
    {**of_container(), "hostUsers": False},
    mounting({"emptyDir": {}}, subPath="a/b"),
    mounting({"configMap": {"name": "c", "items": [{"key": "k", "path": "a/b"}]}}),
    mounting({"persistentVolumeClaim": {"claimName": "c"}}),
    mounting({"image": {"reference": "a:1"}}),
]


@pytest.mark.parametrize("spec", GOOD)
def test_a_pod_without_faults(spec: dict[str, Any]) -> None:
    assert api_refusal(of(spec)) == ""
    assert faults(spec) == []


def of(spec: dict[str, Any]) -> Any:
    more = {key: value for key, value in spec.items() if key != "containers"}
    return pod(*spec["containers"], **more)


def faults(spec: dict[str, Any]) -> list[tuple[str, str, str]]:
    made = of(spec)
    names = [each["name"] for _, each in made.all_containers()]
    images = {**PRESENT, "absent:1": ABSENT}
    found = start_faults(made, plan_volumes(made), images, RuntimeSettings(), names)
    return [(each.subject, each.reason, each.message) for each in found]


CONFIG = "CreateContainerConfigError"


@pytest.mark.parametrize(
    ("spec", "subject", "reason", "message"),
    [
        (of_container(image="NGINX:Lat est"), "container a", "InvalidImageName", "NGINX:Lat est"),
        (of_container(image=""), "container a", "InvalidImageName", "invalid reference format"),
        (
            of_container(image="absent:1", imagePullPolicy="Never"),
            "container a",
            "ErrImageNeverPull",
            'Container image "absent:1" is not present with pull policy of Never',
        ),
        (
            of_container(image="absent:1", imagePullPolicy="always"),
            "container a",
            CONFIG,
            'container a has a malformed field: imagePullPolicy is "always", not one of Always',
        ),
        (
            context(seccompProfile={"type": "Strict"}),
            "container a",
            CONFIG,
            'container a: seccompProfile.type is "Strict", not one of RuntimeDefault',
        ),
        (context(runAsNonRoot=True, runAsUser=0), "container a", CONFIG, "breaks non-root policy"),
        (context(runAsNonRoot=True), "container a", CONFIG, "image will run as root"),
        (
            context(seccompProfile={"type": "Localhost"}),
            "container a",
            CONFIG,
            "localhostProfile must be set",
        ),
        (
            context(appArmorProfile={"type": "Strict"}),
            "container a",
            CONFIG,
            'unknown apparmor profile type: "Strict"',
        ),
        (
            referring(fieldRef={"fieldPath": "spec.nope"}),
            "container a",
            CONFIG,
            "environment variable X: unsupported fieldPath: spec.nope",
        ),
        (
            referring(resourceFieldRef={"resource": "limits.gpu"}),
            "container a",
            CONFIG,
            "unsupported container resource : limits.gpu",
        ),
        (
            referring(resourceFieldRef={"containerName": "b", "resource": "limits.cpu"}),
            "container a",
            CONFIG,
            "environment variable X",
        ),
        (
            {
                "containers": [
                    container("a", env=[{"name": "X", "valueFrom": {"fileKeyRef": FILE_KEY}}])
                ],
                "volumes": [{"name": "v", "hostPath": {"path": "/x"}}],
            },
            "container a",
            CONFIG,
            "it is not an emptyDir volume of the pod",
        ),
        (
            mounting({"emptyDir": {}}, subPath="../x"),
            "container a",
            CONFIG,
            "subPath: '../x' must not contain '..'",
        ),
        (
            mounting({"emptyDir": {}}, subPathExpr="$(NOPE)"),
            "container a",
            CONFIG,
            "missing value for NOPE",
        ),
        (
            of_container(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
            "volume v",
            "FailedMount",
            "no volume of this name in the pod's spec.volumes",
        ),
        (
            mounting({"configMap": {"name": "c", "items": [{"key": "k", "path": "/a"}]}}),
            "volume v",
            "FailedMount",
            "must be relative path: '/a'",
        ),
        (
            mounting({"projected": {"sources": [{"serviceAccountToken": {"path": "../token"}}]}}),
            "volume v",
            "FailedMount",
            "must not contain '..'",
        ),
        (mounting({"image": {"reference": "A B"}}), "volume v", "FailedMount", "parse image name"),
        (
            {**of_container(), "hostname": "a_b"},
            "sandbox",
            "FailedCreatePodSandBox",
            'pod Hostname "a_b" is not a valid DNS label',
        ),
        (
            of_container(ports=[{"containerPort": 80, "hostPort": 80, "hostIP": "x"}]),
            "sandbox",
            "FailedCreatePodSandBox",
            'hostIP "x" of a port of container a is not an IP address',
        ),
    ],
)
def test_a_fault_names_its_subject_and_the_reason_of_the_agent(
    spec: dict[str, Any], subject: str, reason: str, message: str
) -> None:
    ((found_subject, found_reason, found_message), *more) = faults(spec)
    assert (found_subject, found_reason) == (subject, reason)
    assert message in found_message
    assert more == []


def test_only_the_named_containers_are_judged() -> None:
    made = pod(container("a", image="A B"), container("b", image="C D"))
    found = start_faults(made, plan_volumes(made), {}, RuntimeSettings(), ["b"])
    assert [each.subject for each in found] == ["container b"]


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ({"containers": [container("a"), container("a")]}, '2 containers have the name "a"'),
        (
            {"containers": [container("a")], "initContainers": [container("a")]},
            '2 containers have the name "a"',
        ),
        (
            {**of_container(), "volumes": [{"name": "v", "emptyDir": {}}, {"name": "v"}]},
            '2 volumes have the name "v"',
        ),
        (
            of_container(resources={"requests": {"cpu": "-1"}}),
            "container a: resources.requests[cpu] is -1: must be at least 0",
        ),
        (
            of_container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}),
            "container a: resources.requests[cpu] is 2, more than its limit 1500m",
        ),
        (
            of_container(imagePullPolicy="Sometimes"),
            "container a: imagePullPolicy is Sometimes: must be one of Always, IfNotPresent, Never",
        ),
        (of_container(env=[{"name": "A=B"}]), 'container a: env: a variable has the name "A=B"'),
        (
            of_container(ports=[{"containerPort": 99999}]),
            "container a: ports: containerPort is 99999: must be at most 65535",
        ),
        (
            {**of_container(), "dnsPolicy": "None of these"},
            "spec.dnsPolicy is None of these: must be one of ClusterFirst, "
            "ClusterFirstWithHostNet, Default, None",
        ),
        (
            mounting({"emptyDir": {"medium": "Tape"}}),
            "volume v: emptyDir.medium is Tape: must be one of Memory, HugePages",
        ),
        (
            mounting({"emptyDir": {"sizeLimit": "1x"}}),
            "volume v: emptyDir.sizeLimit is 1x: must be a quantity such as 1Gi",
        ),
        ({**of_container(), "name": "P_q"}, 'metadata.name "P_q" is no DNS subdomain'),
    ],
)
def test_a_pod_that_no_api_server_accepts(spec: dict[str, Any], refusal: str) -> None:
    assert api_refusal(of(spec)) == refusal


def test_huge_pages_of_a_size_are_a_medium() -> None:
    assert api_refusal(of(mounting({"emptyDir": {"medium": "HugePages-2Mi"}}))) == ""
