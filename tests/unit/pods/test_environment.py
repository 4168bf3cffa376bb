"""Environments of containers (docs/reference/behaviour.md, h)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy.pods.environment import (
    MAX_ENVIRONMENT,
    MAX_EXPANDED,
    MAX_TOTAL,
    DownwardError,
    EnvironmentInputs,
    ExpansionTooLong,
    NodeFacts,
    NoNodeAddress,
    build_environment,
    expand,
    expand_all,
    field_value,
    resource_value,
    service_variables,
)
from kubeletpy.pods.runtime_status import ContainerConfigError
from tests.kit.records import container, make_pod


class Objects:
    """Config maps, secrets and files that exist."""

    def config_map(self, name: str) -> Mapping[str, str] | None:
        return {"settings": {"COLOR": "blue", "SIZE": "L"}, "large": {"KEY": "x" * 1_000_000}}.get(
            name
        )

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


# Downward API values (docs/reference/behaviour.md, h2).

POD = make_pod(
    container(
        "app",
        resources={
            "limits": {"cpu": "1500m", "memory": "100M", "hugepages-2Mi": "4Mi"},
            "requests": {"cpu": "250m", "memory": "64Mi"},
        },
    ),
    "bare",
    container("vast", resources={"limits": {"cpu": "2000"}}),
    metadata={"labels": {"app": "shop"}, "annotations": {"a/b": "note"}},
    nodeName="node-1",
    serviceAccountName="robot",
)
FACTS = NodeFacts(
    pod_ips=("10.0.0.2", "fd00::2"),
    host_ips=("192.0.2.1", "2001:db8::1"),
    allocatable={"cpu": "4", "memory": "8Gi", "ephemeral-storage": "10Gi", "hugepages-2Mi": "8Mi"},
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "web"),
        ("metadata.namespace", "prod"),
        ("metadata.uid", "uid-1"),
        ("metadata.labels['app']", "shop"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['a/b']", "note"),
        ("spec.nodeName", "node-1"),
        ("spec.serviceAccountName", "robot"),
        ("status.hostIP", "192.0.2.1"),
        ("status.hostIPs", "192.0.2.1,2001:db8::1"),
        ("status.podIP", "10.0.0.2"),
        ("status.podIPs", "10.0.0.2,fd00::2"),
    ],
)
def test_fields(path: str, expected: str) -> None:
    assert field_value({"fieldPath": path}, POD, FACTS) == expected


@pytest.mark.parametrize("path", ["status.hostIP", "status.hostIPs"])
def test_addresses_of_a_node_that_has_none(path: str) -> None:
    facts = NodeFacts(pod_ips=("10.0.0.2",))
    with pytest.raises(NoNodeAddress, match=rf"^{path} is not known: .* cloud controller"):
        field_value({"fieldPath": path}, POD, facts)


@pytest.mark.parametrize("path", ["status.podIP", "status.podIPs"])
def test_addresses_of_a_pod_that_has_none(path: str) -> None:
    on_host = make_pod("app", hostNetwork=True)
    assert field_value({"fieldPath": path}, POD, NodeFacts()) == ""
    with pytest.raises(NoNodeAddress, match=f"^{path} is not known"):
        field_value({"fieldPath": path}, on_host, NodeFacts())
    annotations = {"kubernetes.io/config.source": "file"}
    static = make_pod("app", hostNetwork=True, metadata={"annotations": annotations})
    assert static.is_static
    assert field_value({"fieldPath": path}, static, NodeFacts()) == ""


@pytest.mark.parametrize(
    "path",
    [
        "spec.containers",
        "spec['x']",
        "metadata.labels",
        "metadata.labels']",
        "metadata.annotations']",
        "",
    ],
)
def test_other_fields_are_refused(path: str) -> None:
    with pytest.raises(DownwardError, match="fieldPath"):
        field_value({"fieldPath": path}, POD, FACTS)


def test_addresses_that_are_not_known_yet_are_empty() -> None:
    assert field_value({"fieldPath": "status.podIP"}, POD, NodeFacts()) == ""


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "limits.cpu", "divisor": "0"}, "2"),
        ({"resource": "requests.cpu", "divisor": "100m"}, "3"),
        ({"resource": "limits.memory", "divisor": "1Mi"}, "96"),
        ({"resource": "limits.memory", "divisor": "0"}, "100000000"),
        # cpu and its divisor count in integral thousandths
        ({"resource": "requests.cpu", "divisor": "1500u"}, "125"),
        ({"resource": "requests.memory"}, "67108864"),
        ({"resource": "requests.memory", "divisor": "1500u"}, "44739242667"),
        ({"resource": "limits.hugepages-2Mi", "divisor": "1Mi"}, "4"),
        ({"resource": "requests.ephemeral-storage"}, "0"),
        ({"resource": "limits.ephemeral-storage", "divisor": "1Gi"}, "10"),
        ({"resource": "limits.cpu", "containerName": "bare"}, "4"),
        ({"resource": "limits.cpu", "containerName": "vast", "divisor": "0"}, "2000"),
        ({"resource": "limits.memory", "containerName": "bare", "divisor": "1Gi"}, "8"),
        ({"resource": "limits.hugepages-2Mi", "containerName": "bare"}, "0"),
    ],
)
def test_resources(selector: Any, expected: str) -> None:
    assert resource_value(selector, POD, POD.containers[0], FACTS) == expected


def test_a_pod_level_limit_stands_before_the_node() -> None:
    pod = make_pod(resources={"limits": {"cpu": "2"}})
    assert resource_value({"resource": "limits.cpu"}, pod, pod.containers[0], FACTS) == "2"
    memory: Any = {"resource": "limits.memory", "divisor": "1Gi"}
    assert resource_value(memory, pod, pod.containers[0], FACTS) == "8"
    no_compute = make_pod(resources={"limits": {"ephemeral-storage": "1Gi"}})
    disk: Any = {"resource": "limits.ephemeral-storage", "divisor": "1Gi"}
    assert resource_value(disk, no_compute, no_compute.containers[0], FACTS) == "10"


@pytest.mark.parametrize(
    "selector",
    [
        {"resource": "limits.example.com/gpu"},
        {"resource": "cpu"},
        {"resource": "uses.cpu"},
        {"resource": "limits.cpu", "containerName": "nobody"},
        {"resource": "limits.cpu", "divisor": "many"},
    ],
)
def test_bad_references(selector: Any) -> None:
    with pytest.raises(DownwardError):
        resource_value(selector, POD, POD.containers[0], FACTS)


@pytest.mark.parametrize(
    ("limit_of_pod", "allocatable", "expected"),
    [
        ("2", {"cpu": "4"}, "2"),
        ("0", {"cpu": "4"}, "4"),
        (None, {"cpu": "4"}, "4"),
        ("2", {}, "0"),
        ("2", None, "0"),
    ],
)
def test_the_value_shown_for_an_absent_limit(
    limit_of_pod: str | None, allocatable: dict[str, str] | None, expected: str
) -> None:
    limits = {} if limit_of_pod is None else {"cpu": limit_of_pod}
    pod = make_pod("bare", resources={"limits": limits})
    facts = NodeFacts(allocatable=allocatable)
    assert resource_value({"resource": "limits.cpu"}, pod, pod.containers[0], facts) == expected


# ``$(NAME)`` references (docs/reference/behaviour.md, h).

KNOWN = {"A": "one", "B": "two", "EMPTY": "", "REF": "$(A)", "a b": "spaced", "": "nameless"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("plain", "plain"),
        ("$(A)", "one"),
        ("x$(A)y$(B)z", "xoneytwoz"),
        ("$(A)$(A)", "oneone"),
        ("$(MISSING)", "$(MISSING)"),
        ("$(EMPTY)!", "!"),
        ("$(REF)", "$(A)"),
        ("$(a b)", "spaced"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$one"),
        ("$$$$(A)", "$$(A)"),
        ("$A", "$A"),
        ("$", "$"),
        ("a$", "a$"),
        ("$$", "$"),
        ("$(A", "$(A"),
        ("$(A$(B)", "$(A$(B)"),
        ("$()", "nameless"),
        ("$xA)", "$xA)"),
        ("$(MISSING)!", "$(MISSING)!"),
        ("$(A)) $(", "one) $("),
        (")$(", ")$("),
    ],
)
def test_references(text: str, expected: str) -> None:
    assert expand(text, KNOWN.get) == expected


@given(st.text(alphabet="$()AB x"))
def test_text_without_dollars_in_the_values_never_fails(text: str) -> None:
    expand(text, KNOWN.get)
    assert expand(text.replace("$", ""), KNOWN.get) == text.replace("$", "")


def test_bounded_and_linear() -> None:
    with pytest.raises(ExpansionTooLong):
        expand("$(BIG)" * 3, {"BIG": "x" * (MAX_EXPANDED // 2)}.get)
    assert expand("$(" * 200_000, KNOWN.get) == "$(" * 200_000


def test_commands() -> None:
    assert expand_all(["echo", "$(A)"], KNOWN) == ["echo", "one"]


def test_the_words_of_a_command_are_bounded_together() -> None:
    variables = {"B": "x" * 1_000_000}
    assert len(expand_all(["$(B)"] * 6, variables)) == 6
    with pytest.raises(ExpansionTooLong):
        expand_all(["$(B)"] * 10_000, variables)


def test_the_longest_that_fits() -> None:
    most = {"B": "x" * MAX_EXPANDED, "C": "x" * (MAX_EXPANDED + 1), "D": "x" * (MAX_EXPANDED - 1)}
    assert len(expand("$(B)", most.get)) == MAX_EXPANDED
    assert len(expand("$(D)$$", most.get)) == MAX_EXPANDED
    for text in ("$(C)", "$(B)$$", "$(D)$$$$"):
        with pytest.raises(ExpansionTooLong):
            expand(text, most.get)


def test_the_most_words_that_fit() -> None:
    word = "x" * (MAX_TOTAL // 2)
    assert len(expand_all(["", word, word], {})) == 3
    with pytest.raises(ExpansionTooLong):
        expand_all(["", word, word, "x"], {})
