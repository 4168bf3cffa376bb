"""Environments of containers (docs/reference/behaviour.md, h)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kubeletpy.pods.environment import (
    MAX_ENVIRONMENT,
    EnvironmentInputs,
    NodeFacts,
    build_environment,
    service_variables,
)
from kubeletpy.pods.runtime_status import ContainerConfigError
from tests.unit.runtime_manager.pods_and_records import container, make_pod


class Objects:
    """Config maps, secrets and files that exist."""

    def config_map(self, name: str) -> Mapping[str, str] | None:
        return {
            "settings": {"COLOR": "blue", "SIZE": "L"},
            "large": {"KEY": "x" * 1_000_000},
        }.get(name)

    def secret(self, name: str) -> Mapping[str, str] | None:
        return {"token": {"TOKEN": "hunter2", "COLOR": "secret-blue"}}.get(name)

    def file_key(self, selector: Any) -> str | None:
        return {"present": "from-file"}.get(selector["key"])


INPUTS = EnvironmentInputs(facts=NodeFacts(pod_ips=("10.0.0.2",)), sources=Objects())


def service(name: str, ip: str, *ports: dict[str, Any], namespace: str = "prod") -> Any:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterIP": ip, "ports": list(ports)},
    }


def environment(inputs: EnvironmentInputs = INPUTS, **fields: Any) -> dict[str, str]:
    pod = make_pod(container("app", **fields))
    return build_environment(pod, pod.containers[0], inputs)


def source(kind: str, **fields: Any) -> dict[str, Any]:
    return {"name": "X", "valueFrom": {kind: fields}}


def test_literals_expand_in_order() -> None:
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)-$(C)"},
        {"name": "C", "value": "$$(A)"},
        {"name": "A", "value": "$(A)2"},
        {"name": "NOTHING"},
    ]
    assert environment(env=env) == {"A": "12", "B": "1-$(C)", "C": "$(A)", "NOTHING": ""}


def test_groups_come_first_and_later_ones_win() -> None:
    groups = [
        {"configMapRef": {"name": "settings"}},
        {"secretRef": {"name": "token"}},
        {"prefix": "P_", "configMapRef": {"name": "settings"}},
        {"configMapRef": {"name": "gone", "optional": True}},
        {"secretRef": {"name": "gone", "optional": True}},
    ]
    env = [{"name": "SIZE", "value": "$(SIZE)XL"}]
    assert environment(envFrom=groups, env=env) == {
        "COLOR": "secret-blue",
        "SIZE": "LXL",
        "TOKEN": "hunter2",
        "P_COLOR": "blue",
        "P_SIZE": "L",
    }


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (source("fieldRef", fieldPath="status.podIP"), "10.0.0.2"),
        (source("resourceFieldRef", resource="requests.cpu"), "0"),
        (source("configMapKeyRef", name="settings", key="SIZE"), "L"),
        (source("secretKeyRef", name="token", key="TOKEN"), "hunter2"),
        (source("fileKeyRef", volumeName="v", path="p", key="present"), "from-file"),
    ],
)
def test_sources(entry: dict[str, Any], expected: str) -> None:
    assert environment(env=[entry]) == {"X": expected}


@pytest.mark.parametrize(
    "entry",
    [
        source("configMapKeyRef", name="settings", key="NONE", optional=True),
        source("configMapKeyRef", name="gone", key="NONE", optional=True),
        source("secretKeyRef", name="gone", key="NONE", optional=True),
        source("fileKeyRef", volumeName="v", path="p", key="absent", optional=True),
    ],
)
def test_an_optional_miss_leaves_the_earlier_value(entry: dict[str, Any]) -> None:
    assert environment(env=[entry]) == {}
    assert environment(env=[{"name": "X", "value": "before"}, entry]) == {"X": "before"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"envFrom": [{"configMapRef": {"name": "gone"}}]}, 'configmap "gone" not found'),
        ({"envFrom": [{"secretRef": {"name": "gone"}}]}, 'secret "gone" not found'),
        (
            {"env": [source("configMapKeyRef", name="settings", key="NONE")]},
            "couldn't find key NONE in ConfigMap prod/settings",
        ),
        (
            {"env": [source("secretKeyRef", name="token", key="NONE")]},
            "couldn't find key NONE in Secret prod/token",
        ),
        ({"env": [source("secretKeyRef", name="gone", key="K")]}, 'secret "gone" not found'),
        (
            {"env": [source("fileKeyRef", volumeName="v", path="p", key="absent")]},
            'environment variable key "absent" not found in file "p"',
        ),
        ({"env": [source("fieldRef", fieldPath="spec.x")]}, "environment variable X: unsupported"),
    ],
)
def test_references_that_cannot_be_resolved(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ContainerConfigError) as caught:
        environment(**fields)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"envFrom": [{"secretRef": {"name": "token", "optional": True}}]},
        {"env": [source("configMapKeyRef", name="settings", key="SIZE")]},
        {"env": [source("fileKeyRef", volumeName="v", path="p", key="present")]},
    ],
)
def test_without_sources_a_reference_is_not_supported(fields: dict[str, Any]) -> None:
    with pytest.raises(ContainerConfigError, match="not supported by this version"):
        environment(EnvironmentInputs(), **fields)


def test_references_cannot_grow_without_end() -> None:
    env = [{"name": "V0", "value": "x" * 100}]
    env += [{"name": f"V{i}", "value": f"$(V{i - 1})" * 10} for i in range(1, 12)]
    with pytest.raises(ContainerConfigError, match="environment variable V"):
        environment(env=env)
    groups = [{"prefix": f"P{i}_", "configMapRef": {"name": "large"}} for i in range(9)]
    with pytest.raises(ContainerConfigError, match=str(MAX_ENVIRONMENT)):
        environment(envFrom=groups)
    many = [{"name": f"V{i}", "value": "x" * 1_000_000} for i in range(9)]
    with pytest.raises(ContainerConfigError, match=str(MAX_ENVIRONMENT)):
        environment(env=many)


def test_service_links_must_be_decided_and_services_known() -> None:
    pod = make_pod()
    del pod.object["spec"]["enableServiceLinks"]
    with pytest.raises(ContainerConfigError, match="enableServiceLinks"):
        build_environment(pod, pod.containers[0], INPUTS)
    with pytest.raises(ContainerConfigError, match="services have not yet been read"):
        environment(EnvironmentInputs(services=None))
    static = make_pod(metadata={"annotations": {"kubernetes.io/config.source": "file"}})
    no_services = EnvironmentInputs(services=None)
    assert build_environment(static, static.containers[0], no_services) == {}


def test_services_fill_what_is_not_set_and_can_be_referred_to() -> None:
    inputs = EnvironmentInputs(services=[service("db", "10.96.0.20", {"port": 5432})])
    env = [
        {"name": "DSN", "value": "pg://$(DB_SERVICE_HOST)"},
        {"name": "DB_SERVICE_PORT", "value": "1"},
    ]
    found = environment(inputs, env=env)
    assert found["DSN"] == "pg://10.96.0.20"
    assert found["DB_SERVICE_PORT"] == "1"
    assert found["DB_SERVICE_HOST"] == "10.96.0.20"


def test_variables_of_a_service() -> None:
    dns = service(
        "my-dns",
        "10.96.0.10",
        {"name": "dns-udp", "port": 53, "protocol": "UDP"},
        {"name": "web", "port": 80},
    )
    assert service_variables([dns], "prod", True) == {
        "MY_DNS_SERVICE_HOST": "10.96.0.10",
        "MY_DNS_SERVICE_PORT": "53",
        "MY_DNS_SERVICE_PORT_DNS_UDP": "53",
        "MY_DNS_SERVICE_PORT_WEB": "80",
        "MY_DNS_PORT": "udp://10.96.0.10:53",
        "MY_DNS_PORT_53_UDP": "udp://10.96.0.10:53",
        "MY_DNS_PORT_53_UDP_PROTO": "udp",
        "MY_DNS_PORT_53_UDP_PORT": "53",
        "MY_DNS_PORT_53_UDP_ADDR": "10.96.0.10",
        "MY_DNS_PORT_80_TCP": "tcp://10.96.0.10:80",
        "MY_DNS_PORT_80_TCP_PROTO": "tcp",
        "MY_DNS_PORT_80_TCP_PORT": "80",
        "MY_DNS_PORT_80_TCP_ADDR": "10.96.0.10",
    }


def test_which_services_a_pod_sees() -> None:
    services = [
        service("kubernetes", "10.96.0.1", {"port": 443}, namespace="default"),
        service("kubernetes", "10.96.0.99", {"port": 443}),
        service("own", "10.96.0.2", {"port": 1}),
        service("other", "10.96.0.3", {"port": 1}, namespace="test"),
        service("shared", "10.96.0.5", {"port": 1}, namespace="default"),
        service("headless", "None", {"port": 1}),
        service("pending", "", {"port": 1}),
        service("portless", "10.96.0.4"),
        {},
    ]
    linked = service_variables(services, "prod", True)
    assert {name for name in linked if name.endswith("_HOST")} == {
        "KUBERNETES_SERVICE_HOST",
        "OWN_SERVICE_HOST",
    }
    assert linked["KUBERNETES_SERVICE_HOST"] == "10.96.0.1"
    unlinked = service_variables(services, "prod", False)
    assert {name.split("_")[0] for name in unlinked} == {"KUBERNETES"}
    v6 = service_variables([service("six", "fd00::1", {"port": 80})], "prod", True)
    assert v6["SIX_PORT"] == "tcp://[fd00::1]:80"


class Sized:
    """A config map and a secret whose names state how many characters they contain."""

    def config_map(self, name: str) -> Mapping[str, str] | None:
        return {"K": "x" * int(name)}

    secret = config_map

    def file_key(self, selector: Any) -> str | None:
        return None


def test_the_largest_environment() -> None:
    inputs = EnvironmentInputs(sources=Sized())
    full = [{"configMapRef": {"name": str(MAX_ENVIRONMENT - 1)}}]
    assert len(environment(inputs, envFrom=full, env=[{"name": "A", "value": "1"}])) == 2
    assert len(environment(inputs, envFrom=[*full, {"secretRef": {"name": "1"}}])) == 1
    for groups, value in (
        ([{"secretRef": {"name": str(MAX_ENVIRONMENT + 1)}}], ""),
        (full, "12"),
        ([*full, {"secretRef": {"name": "2"}}], ""),
    ):
        with pytest.raises(ContainerConfigError, match="is larger than"):
            environment(inputs, envFrom=groups, env=[{"name": "A", "value": value}])
    assert environment(inputs, envFrom=[{"prefix": "P"}]) == {}
