"""The Go module that builds a control plane."""

from __future__ import annotations

from tools.control_plane.building import go_module, linker_flags

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


def test_programs_report_the_release() -> None:
    package = "k8s.io/component-base/version"
    assert linker_flags("1.36.3") == (
        f"-s -w -X {package}.gitVersion=v1.36.3 -X {package}.gitMajor=1 -X {package}.gitMinor=36"
    )
