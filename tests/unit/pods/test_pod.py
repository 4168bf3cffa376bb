"""Properties of a pod."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from kubeletpy.pods import pod as pods
from kubeletpy.pods.pod import (
    ContainerKind,
    HostnameError,
    MalformedPod,
    Pod,
    fnv1a_32,
    fnv1a_64,
    kernel_hostname,
    matches,
    order_pod_ips,
    pod_addresses,
    pod_domain,
    pod_hostname,
    with_disruption,
)
from tests.kit.records import make_pod

META = {"name": "p", "namespace": "d", "uid": "u"}
SPEC = {"containers": [{"name": "a"}]}
NO_TEXT = "is missing or not a string"


def make(spec: Any = None, **metadata: Any) -> Pod:
    full: Any = {"containers": [{"name": "a"}], **(spec or {})}
    return Pod({"metadata": {**META, **metadata}, "spec": full})  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("supplied", "of_spec", "of_deletion"),
    [(None, 30, None), (0, 0, 0), (5, 5, 5), (2**40, pods.MAX_GRACE_S, pods.MAX_GRACE_S)],
)
def test_grace_periods(supplied: int | None, of_spec: int, of_deletion: int | None) -> None:
    of = make({"terminationGracePeriodSeconds": supplied}, deletionGracePeriodSeconds=supplied)
    assert of.termination_grace_period == of_spec
    assert of.deletion_grace_period == of_deletion
    assert pods.MAX_GRACE_S == 2**31 - 1


@pytest.mark.parametrize(
    ("mirror", "own", "reported"),
    [
        ({pods.CONFIG_MIRROR: "h"}, {pods.CONFIG_HASH: "h"}, True),
        ({pods.CONFIG_MIRROR: "g"}, {pods.CONFIG_HASH: "h"}, False),
        ({pods.CONFIG_MIRROR: "u"}, {}, True),
        ({}, {}, False),
    ],
)
def test_whose_mirror_it_is(mirror: Any, own: Any, reported: bool) -> None:
    assert make(annotations=own).is_reported_by(make(annotations=mirror)) is reported


@pytest.mark.parametrize(
    ("phase", "terminal"),
    [("Succeeded", True), ("Failed", True), ("Running", False), ("", False), (None, False)],
)
def test_terminal_phases(phase: str | None, terminal: bool) -> None:
    body: Any = {"metadata": META, "spec": {"containers": [{"name": "a"}]}}
    if phase is not None:
        body["status"] = {"phase": phase}
    of = Pod(body)
    assert of.is_terminal_in_api is terminal
    assert of.phase == (phase or "")


def test_containers_by_name() -> None:
    of = make({"initContainers": [{"name": "i"}], "ephemeralContainers": [{"name": "e"}]})
    found = {name: of.find_container(name) for name in ("i", "a", "e", "x")}
    assert found == {
        "i": (ContainerKind.INIT, {"name": "i"}),
        "a": (ContainerKind.REGULAR, {"name": "a"}),
        "e": (ContainerKind.EPHEMERAL, {"name": "e"}),
        "x": None,
    }


def test_pods_with_equal_content_are_equal() -> None:
    assert make() == make()
    assert make() != make({"hostNetwork": True})
    assert make() != "p"


@pytest.mark.parametrize("deleted", [True, False])
def test_deletion_and_the_host(deleted: bool) -> None:
    of = make({"hostNetwork": deleted}, **({"deletionTimestamp": "x"} if deleted else {}))
    assert (of.being_deleted, of.host_network) == (deleted, deleted)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"metadata": META, "spec": {"containers": []}}, "pod d/p: spec.containers is empty"),
        ({"metadata": META, "spec": {"containers": {}}}, "spec.containers is not a list"),
        ({"metadata": META, "spec": {"containers": ["a"]}}, "spec.containers[0] has no name"),
        (
            {"metadata": META, "spec": {"containers": [{"name": "a"}, {}]}},
            "spec.containers[1] has no name",
        ),
        (
            {"metadata": META, "spec": {"containers": [{"name": "a"}], "initContainers": {}}},
            "spec.initContainers is not a list",
        ),
        ({"metadata": META}, "spec is missing or not an object"),
        ({"metadata": [], "spec": SPEC}, "metadata is missing or not an object"),
        ({"metadata": {**META, "name": 1}, "spec": SPEC}, f"metadata.name {NO_TEXT}"),
        ({"metadata": {**META, "name": ""}, "spec": SPEC}, f"metadata.name {NO_TEXT}"),
        ({"metadata": {**META, "uid": 5}, "spec": SPEC}, f"metadata.uid {NO_TEXT}"),
        ([], "metadata is missing or not an object"),
        ("pod", "metadata is missing or not an object"),
    ],
)
def test_malformed_pods_are_refused(body: Any, message: str) -> None:
    with pytest.raises(MalformedPod, match=f"^{re.escape(message)}$"):
        Pod(body)


def test_null_lists_are_empty() -> None:
    of = make({"initContainers": None, "ephemeralContainers": None})
    assert (of.init_containers, of.ephemeral_containers) == ([], [])


def test_absent_fields_have_defaults() -> None:
    bare = make()
    assert (bare.generation, bare.restart_policy, bare.labels, bare.annotations) == (
        0,
        "Always",
        {},
        {},
    )
    assert (make(generation=3).generation, make({"restartPolicy": "Never"}).restart_policy) == (
        3,
        "Never",
    )


def test_priority() -> None:
    assert [make({"priority": supplied}).priority for supplied in (None, 0, -5, 7)] == [0, 0, -5, 7]
    assert make().priority == 0


# Names of pods (docs/reference/names.csv: pod hostname, pod domain, FQDN as hostname; KEP-1797,
# KEP-4762).

ROWS: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("by-name", {}, "web", "", "web"),
    ("hostname", {"hostname": "db"}, "db", "", "db"),
    ("subdomain", {"subdomain": "sub"}, "web", "sub.prod.svc.cluster.local", "web"),
    (
        "fqdn",
        {"subdomain": "sub", "setHostnameAsFQDN": True},
        "web",
        "sub.prod.svc.cluster.local",
        "web.sub.prod.svc.cluster.local",
    ),
    ("fqdn-without-subdomain", {"setHostnameAsFQDN": True}, "web", "", "web"),
    (
        "override",
        {"hostnameOverride": "a.b.example", "hostname": "db", "subdomain": "sub"},
        "a.b.example",
        "",
        "a.b.example",
    ),
]


@pytest.mark.parametrize(
    ("spec", "hostname", "domain", "kernel"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_names(spec: dict[str, Any], hostname: str, domain: str, kernel: str) -> None:
    pod = make_pod(**spec)
    assert pod_hostname(pod) == hostname
    assert pod_domain(pod, "cluster.local") == domain
    assert kernel_hostname(pod, "cluster.local") == kernel


def test_long_names_are_cut_to_what_the_kernel_takes() -> None:
    pod = make_pod(metadata={"name": "a" * 61 + "--x.y"})
    assert pod_hostname(pod) == "a" * 61
    with pytest.raises(HostnameError, match="was invalid"):
        pod_hostname(make_pod(metadata={"name": "-" * 70}))


def test_an_fqdn_of_64_characters_is_the_longest() -> None:
    fits = make_pod(subdomain="s" * 43, setHostnameAsFQDN=True)
    assert len(kernel_hostname(fits, "cluster")) == 64
    with pytest.raises(HostnameError, match=r"64 characters is the max, 65 characters requested"):
        kernel_hostname(make_pod(subdomain="s" * 44, setHostnameAsFQDN=True), "cluster")


@pytest.mark.parametrize(
    "spec",
    [
        {"hostname": "UPPER"},
        {"hostname": "a.b"},
        {"hostname": "x" * 64},
        {"subdomain": "a_b", "setHostnameAsFQDN": True},
        {"hostnameOverride": "-x"},
        {"hostnameOverride": "a\nb"},
        {"hostname": "a\n"},
    ],
)
def test_bad_names_are_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(HostnameError, match="not a valid DNS"):
        kernel_hostname(make_pod(**spec), "cluster.local")


@pytest.mark.parametrize(
    ("name", "hostname"),
    [("a" * 63, "a" * 63), ("a" * 64, "a" * 63), ("a" * 62 + "-b", "a" * 62), ("a.b", "a.b")],
)
def test_63_characters(name: str, hostname: str) -> None:
    assert pod_hostname(make_pod(metadata={"name": name})) == hostname
    assert pod_hostname(make_pod(hostnameOverride=name)) == hostname


@pytest.mark.parametrize(("length", "fits"), [(253, True), (254, False)])
def test_the_length_of_an_override(length: int, fits: bool) -> None:
    pod = make_pod(hostnameOverride="a" * length)
    if fits:
        assert pod_hostname(pod) == "a" * 63
    else:
        with pytest.raises(HostnameError, match="not a valid DNS subdomain"):
            pod_hostname(pod)


# Node selectors: operators, terms, and what is malformed and so matches nothing.

LABELS = {"zone": "a", "cores": "8", "empty": "", "signed": "+8", "text": "8x"}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def field(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("term", "picked"),
    [
        ({}, False),
        (expression("zone", "In", "b", "a"), True),
        (expression("zone", "In", "b"), False),
        (expression("none", "In", "a"), False),
        (expression("zone", "NotIn", "b"), True),
        (expression("zone", "NotIn", "a"), False),
        (expression("none", "NotIn", "a"), True),
        (expression("none", "NotIn"), False),
        (expression("zone", "NotIn"), False),
        (expression("empty", "Exists"), True),
        (expression("none", "Exists"), False),
        (expression("zone", "Exists", "a"), False),
        (expression("none", "DoesNotExist"), True),
        (expression("zone", "DoesNotExist"), False),
        (expression("none", "DoesNotExist", "a"), False),
        (expression("cores", "Gt", "7"), True),
        (expression("cores", "Gt", "8"), False),
        (expression("cores", "Gt", "-9"), True),
        (expression("signed", "Gt", "7"), True),
        (expression("cores", "Lt", "9"), True),
        (expression("cores", "Lt", "8"), False),
        (expression("cores", "Lt", "9", "10"), False),
        (expression("cores", "Lt"), False),
        (expression("cores", "Gt", "x"), False),
        (expression("text", "Gt", "7"), False),
        (expression("none", "Gt", "7"), False),
        (expression("none", "Gt", "x"), False),
        (expression("zone", "Like", "a"), False),
        (field("metadata.name", "In", "n"), True),
        (field("metadata.name", "In", "m"), False),
        (field("metadata.name", "NotIn", "m"), True),
        (field("metadata.name", "NotIn", "n"), False),
        (field("metadata.name", "In", "n", "m"), False),
        (field("metadata.name", "Exists"), False),
        (field("metadata.name", "Gt", "7"), False),
        (field("zone", "NotIn", "b"), False),
        ({**expression("zone", "In", "a"), **field("metadata.name", "In", "n")}, True),
        ({**expression("zone", "In", "b"), **field("metadata.name", "In", "n")}, False),
        ({**expression("zone", "In", "a"), **field("metadata.name", "In", "m")}, False),
    ],
)
def test_a_term(term: Any, picked: bool) -> None:
    assert matches({"nodeSelectorTerms": [term]}, LABELS, "n") is picked


def test_a_number_as_name() -> None:
    name_above = {"nodeSelectorTerms": [field("metadata.name", "Gt", "7")]}
    assert not matches(name_above, LABELS, "8")


def test_one_term_is_enough() -> None:
    terms = [expression("zone", "In", "b"), expression("zone", "In", "a")]
    assert matches({"nodeSelectorTerms": terms}, LABELS, "n")
    assert not matches({"nodeSelectorTerms": []}, LABELS, "n")


# The addresses of a pod: those of its sandbox, or of its node.


@pytest.mark.parametrize(
    ("ips", "hosts", "ordered"),
    [
        (("fd00::1", "10.0.0.1"), ("192.168.0.1",), ["10.0.0.1", "fd00::1"]),
        (("10.0.0.1", "fd00::1"), ("fd00::9",), ["fd00::1", "10.0.0.1"]),
        (("10.0.0.1", "10.0.0.2"), (), ["10.0.0.1"]),
        (("fd00::1", "10.0.0.1"), (), ["10.0.0.1", "fd00::1"]),
        (("10.0.0.1", "fd00::1"), ("fd00::9", "192.168.0.1"), ["fd00::1", "10.0.0.1"]),
        (("nonsense",), (), []),
        (("::ffff:10.0.0.1", "FD00:0::1"), ("192.168.0.1",), ["10.0.0.1", "fd00::1"]),
        (("fe80::1%eth0", "10.0.0.1"), ("fd00::9",), ["10.0.0.1"]),
    ],
)
def test_pod_ip_order(ips: Sequence[str], hosts: Sequence[str], ordered: list[str]) -> None:
    assert order_pod_ips(ips, hosts) == ordered


@pytest.mark.parametrize(
    ("host_network", "ips", "hosts", "addresses"),
    [
        (False, ("10.0.0.1",), ("192.168.0.1",), ["10.0.0.1"]),
        (False, (), ("192.168.0.1",), []),
        (True, (), ("192.168.0.1",), ["192.168.0.1"]),
        (True, (), ("192.168.0.1", "fd00::9"), ["192.168.0.1", "fd00::9"]),
        (True, ("fd00::9",), ("192.168.0.1", "fd00::9"), ["fd00::9"]),
        (True, (), (), []),
        (True, (), ("192.168.0.1", "192.168.0.2"), ["192.168.0.1"]),
        (True, (), ("192.168.0.1", "192.168.0.2", "fd00::9"), ["192.168.0.1"]),
        (True, ("10.0.0.1", "fd00::1"), ("192.168.0.1", "fd00::9"), ["10.0.0.1", "fd00::1"]),
    ],
)
def test_pod_addresses(
    host_network: bool, ips: Sequence[str], hosts: Sequence[str], addresses: list[str]
) -> None:
    pod = Pod(
        {
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [{"name": "c"}], "hostNetwork": host_network},
        }
    )
    assert pod_addresses(pod, ips, hosts) == addresses


# The condition of a pod that the node ends (KEP-3329).

READY = {"type": "Ready", "status": "True"}
EARLIER = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
OURS = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "TerminationByKubelet",
    "message": "the node shuts down",
    "lastTransitionTime": "1970-01-01T00:01:00Z",
}


@pytest.mark.parametrize(
    ("status", "generation", "conditions"),
    [
        ({}, 0, [OURS]),
        ({"conditions": [READY]}, 3, [READY, {**OURS, "observedGeneration": 3}]),
        ({"conditions": [EARLIER, READY]}, 0, [READY, OURS]),
    ],
)
def test_it_joins_the_others(status: Any, generation: int, conditions: list[Any]) -> None:
    assert with_disruption(status, "the node shuts down", 60.0, generation) == conditions


def test_no_generation_by_default() -> None:
    assert with_disruption({}, "the node shuts down", 60.0) == [OURS]


# FNV hashes against the authors' own test vectors.


@pytest.mark.parametrize(
    ("data", "short", "long"),
    [
        (b"", 0x811C9DC5, 0xCBF29CE484222325),
        (b"a", 0xE40C292C, 0xAF63DC4C8601EC8C),
        (b"foobar", 0xBF9CF968, 0x85944171F73967E8),
    ],
)
def test_vectors(data: bytes, short: int, long: int) -> None:
    assert (fnv1a_32(data), fnv1a_64(data)) == (short, long)
