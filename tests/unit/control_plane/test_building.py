"""The Go module that builds a control plane."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tools.control_plane import building
from tools.control_plane.building import (
    CLIENTS,
    CONTROL_PLANE,
    DNS,
    END_TO_END_TESTS,
    KUBEADM,
    KUBELET,
    PROXY,
    RELEASED_KUBELET,
    fits,
    go_module,
    linker_flags,
    missing_modules,
    programs,
)
from tools.control_plane.releases import NEWEST, RELEASES, release

OF_KUBERNETES = """\
module k8s.io/kubernetes

go 1.26.0

require (
	k8s.io/api v0.0.0
	k8s.io/klog/v2 v2.140.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/cli-runtime => ./staging/src/k8s.io/cli-runtime
)
"""


def test_each_staging_module_is_that_of_the_release() -> None:
    assert go_module("1.37.2", OF_KUBERNETES).splitlines() == [
        "module kubeletpy.local/controlplane",
        "go 1.26.0",
        "require k8s.io/kubernetes v1.37.2",
        "replace k8s.io/api => k8s.io/api v0.37.2",
        "replace k8s.io/cli-runtime => k8s.io/cli-runtime v0.37.2",
    ]


def test_further_modules_are_required_beside_the_release() -> None:
    module = go_module("1.37.2", OF_KUBERNETES, DNS.requires)
    assert "require github.com/coredns/coredns v1.14.7\n" in module


def test_programs_are_called_by_the_last_part_of_their_package() -> None:
    assert CONTROL_PLANE.names() == ["kube-apiserver", "kube-controller-manager", "kube-scheduler"]
    assert PROXY.names() == ["kube-proxy"]
    assert CLIENTS.names() == ["kubectl", "sample-apiserver"]
    assert DNS.names() == ["coredns"]
    assert KUBEADM.names() == ["kubeadm", "server"]
    assert END_TO_END_TESTS.names() == [
        "kubelet",
        "agnhost",
        "nonewprivs",
        "sample-device-plugin",
        "ginkgo",
        "e2e.test",
        "hostpathplugin",
    ]


def test_programs_report_the_release() -> None:
    package = "k8s.io/component-base/version"
    assert linker_flags("1.36.3") == (
        f"-s -w -X {package}.gitVersion=v1.36.3 -X {package}.gitMajor=1 -X {package}.gitMinor=36"
    )


def test_a_program_to_compare_with_is_compiled_as_released() -> None:
    here = Path("/programs")
    named = ["-o", here, "-ldflags", linker_flags("1.37.2")]
    kubelet = "k8s.io/kubernetes/cmd/kubelet"
    assert RELEASED_KUBELET.commands("1.37.2", here) == [["go", "build", *named, kubelet]]
    cheap = [*named, "-gcflags=all=-l -dwarf=false"]
    assert KUBELET.commands("1.37.2", here) == [["go", "build", *cheap, kubelet]]
    verbs = [each[:2] for each in END_TO_END_TESTS.commands("1.37.2", here)]
    assert verbs == [["go", "build"], ["go", "test"], ["go", "build"]]


def test_a_program_to_compare_with_is_kept_beside_that_of_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "cache_dir", lambda: tmp_path)
    built: list[Path] = []
    monkeypatch.setattr(building, "_build", lambda version, desired, home: built.append(home))
    homes = [programs("1.37.2", each) for each in (KUBELET, RELEASED_KUBELET)]
    of_release = tmp_path / "control-plane" / "1.37.2"
    assert homes == built == [of_release, of_release / "released"]


@pytest.mark.parametrize(
    ("found", "needed", "expected"),
    [
        ("go1.26.8", "1.26.0", True),
        ("go1.26.0", "1.26.0", True),
        ("go1.25.9", "1.26.0", False),
        ("go1.30.0", "1.26.0", True),
        ("go2.0", "1.26.0", True),
        ("go1.19.8", "1.25", False),
        ("go1.26.8-X:nodwarf5", "1.26.0", True),
    ],
)
def test_go_fits_from_the_language_version_on(found: str, needed: str, expected: bool) -> None:
    assert fits(found, needed) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("v1.37.2", "1.37.2"),
        ("1.34.0", "1.34.0"),
        ("v1.38.0-beta.0", "1.38.0-beta.0"),
        ("1.35", "1.35.4"),
        ("v1.36", "1.36.3"),
    ],
)
def test_a_release_is_named_with_and_without_v(name: str, expected: str) -> None:
    assert release(name) == expected


def test_an_unknown_name_of_a_release_is_refused_with_what_is_possible() -> None:
    desired = r"called '1\.20'.*1\.35\.4, 1\.36\.3, 1\.37\.2"
    with pytest.raises(argparse.ArgumentTypeError, match=desired):
        release("1.20")


def test_the_newest_release_is_the_last_of_one_for_each_minor() -> None:
    numbers = [[int(part) for part in each.split(".")] for each in RELEASES]
    assert numbers == sorted(numbers)
    assert len({each[1] for each in numbers}) == len(numbers)
    assert RELEASES[-1] == NEWEST


def test_modules_that_a_proxy_refuses() -> None:
    proxy = "https://proxy.golang.org"
    output = (
        f"go: b.io/b/v7@v7.0.1: reading {proxy}/b.io/b/v7/@v/v7.0.1.mod: 403 Forbidden\n"
        f"\ta.io/a@v0.38.0-beta.0: reading {proxy}/a.io/a/@v/v0.38.0-beta.0.info: 404 Not Found\n"
        f"go: b.io/b/v7@v7.0.1: reading {proxy}/b.io/b/v7/@v/v7.0.1.zip: 403 Forbidden\n"
        f"go: c.io/c@v1.0.0: reading {proxy}/c.io/c/@v/v1.0.0.mod: 502 Bad Gateway\n"
    )
    assert missing_modules(output) == ["a.io/a@v0.38.0-beta.0", "b.io/b/v7@v7.0.1"]
