"""Names of pods (docs/reference/names.csv: pod hostname, pod domain, FQDN as hostname; KEP-1797,
KEP-4762)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.pod import HostnameError, kernel_hostname, pod_domain, pod_hostname
from tests.unit.runtime_manager.pods_and_records import make_pod

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
