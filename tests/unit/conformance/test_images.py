"""Which images of the end-to-end tests have stand-ins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.conformance import images
from tools.conformance.images import libraries, needed, stand_ins

LISTED = """\
registry.k8s.io/e2e-test-images/agnhost:2.66.1
registry.k8s.io/e2e-test-images/node-perf/npb-ep:1.6.0
registry.k8s.io/sig-storage/csi-attacher:v4.12.0
registry.k8s.io/sig-storage/hostpathplugin:v1.17.1
registry.k8s.io/pause:3.10.2
registry.k8s.io/etcd:3.7.0-0
invalid.registry.k8s.io/invalid/alpine:3.1
gcr.io/k8s-authenticated-test/agnhost:2.6
"""

LDD = """\
\tlinux-vdso.so.1 (0x00007ffd8f5f2000)
\tlibtinfo.so.6 => /lib/x86_64-linux-gnu/libtinfo.so.6 (0x00007f0e8c1b0000)
\tlibgone.so.1 => not found
\t/lib64/ld-linux-x86-64.so.2 (0x00007f0e8c340000)
"""


def test_images_of_other_projects_have_none() -> None:
    assert needed(LISTED) == [
        "registry.k8s.io/e2e-test-images/agnhost:2.66.1",
        "registry.k8s.io/e2e-test-images/sample-device-plugin:1.8.0",
        "registry.k8s.io/pause:3.10.2",
        "registry.k8s.io/sig-storage/hostpathplugin:v1.17.1",
    ]


def test_libraries_are_those_that_were_found() -> None:
    assert libraries(LDD.splitlines()) == [
        "/lib/x86_64-linux-gnu/libtinfo.so.6",
        "/lib64/ld-linux-x86-64.so.2",
    ]


def test_stand_ins_have_the_programs_and_what_they_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "_PROGRAMS", ("sh",))
    for name in ("agnhost", "hostpathplugin", "sample-device-plugin", "nonewprivs", "key"):
        (tmp_path / name).write_text(name)
    pause, agnhost = "registry.k8s.io/pause:3.10.2", "registry.k8s.io/e2e-test-images/agnhost:2"
    found = {
        each.name: each
        for each in stand_ins([pause, agnhost], tmp_path, tmp_path / "key", tmp_path / "key")
    }
    assert set(found) == {pause, agnhost}
    assert found[agnhost].config["Entrypoint"] == ["/agnhost"]
    assert found[agnhost].files["agnhost"] == (0o755, b"agnhost")
    assert found[agnhost].files["localhost.crt"] == (0o644, b"key")
