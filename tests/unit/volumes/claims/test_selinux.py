"""The SELinux context of a mount, and conflicts with another context."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.host.machine import DEFAULT_LABEL, file_label
from kubeletpy.base.kubernetes_version import NEWEST, SUPPORTED, KubernetesVersion
from kubeletpy.config import default_settings
from kubeletpy.volumes.claims.model import (
    Mode,
    PublishedOnDisk,
    SELinux,
    SELinuxConflict,
    StagedOnDisk,
    WaitCause,
    mount_context,
    mount_option,
)
from kubeletpy.volumes.operations.model import (
    Facts,
    OperationKind,
    OperationsPlan,
    PodDemand,
    PodMount,
    Presence,
    Volume,
)
from kubeletpy.volumes.operations.plan import plan
from tests.kit.volumes import pod, pv, spec

NODE = SELinux("system_u:object_r:container_file_t:s0")
ONE, TWO = {"level": "s0:c1,c2"}, {"level": "s0:c3,c4"}
LABEL = "system_u:object_r:container_file_t:s0:c1,c2"
SOLE = ("ReadWriteOncePod",)


def using(*options: Any, of_pod: Any = None, **policy: str) -> Any:
    """A pod whose containers mount the volume, each with these options."""
    containers = [
        {
            "name": f"c{number}",
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            **({} if each is None else {"securityContext": {"seLinuxOptions": each}}),
        }
        for number, each in enumerate(options)
    ]
    other = {
        "name": "other",
        "volumeMounts": [{"name": "w", "mountPath": "/w"}],
        "securityContext": {"seLinuxOptions": TWO},
    }
    context = {**({} if of_pod is None else {"seLinuxOptions": of_pod}), **policy}
    return pod(containers=[*containers, other], securityContext=context)


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        (using(ONE), LABEL),
        (using(None, of_pod=ONE), LABEL),
        (using(ONE, None, of_pod=ONE), LABEL),
        (using({**ONE, "user": "me_u", "type": "spc_t"}), LABEL.replace("system_u", "me_u")),
        (using(None), None),
        (using({"type": "spc_t"}), None),
        (using({"level": 's0",suid,dev,context="x'}), None),
        (using({**ONE, "user": "a b"}), None),
        (using(ONE, seLinuxChangePolicy="Recursive"), None),
        (using(ONE, seLinuxChangePolicy="MountOption"), LABEL),
        (using(ONE, TWO), SELinuxConflict((LABEL, LABEL.replace("c1,c2", "c3,c4")))),
        (using(ONE, {}), SELinuxConflict(("", LABEL))),
    ],
)
def test_context_of_a_volume_that_one_pod_uses(user: Any, expected: object) -> None:
    volume = spec(pv=pv(), access_modes=SOLE)
    assert mount_context(volume, user, NODE, supported=True) == expected


@pytest.mark.parametrize(
    ("changes", "node", "supported", "expected"),
    [
        ({}, NODE, True, None),
        ({}, SELinux(NODE.file_label, all_modes=True), True, LABEL),
        ({"access_modes": SOLE}, NODE, False, None),
        ({"access_modes": (*SOLE, "ReadWriteOnce")}, NODE, True, None),
        ({"access_modes": SOLE}, SELinux(), True, None),
        ({"access_modes": SOLE, "mode": Mode.BLOCK}, NODE, True, None),
        ({"access_modes": SOLE, "pv": None}, NODE, True, None),
    ],
)
def test_volumes_that_the_runtime_labels(
    changes: dict[str, Any], node: SELinux, supported: bool, expected: str | None
) -> None:
    volume = spec(**{"pv": pv(), "access_modes": ("ReadWriteOnce",), **changes})
    assert mount_context(volume, using(ONE), node, supported=supported) == expected


@pytest.mark.parametrize(
    ("context", "options"), [(None, ()), ("", ()), (LABEL, (f'context="{LABEL}"',))]
)
def test_the_option_of_a_mount(context: str | None, options: tuple[str, ...]) -> None:
    assert mount_option(context) == options


MODES = [SOLE, ("ReadWriteOnce",), ("ReadOnlyMany",), ("ReadWriteMany",), (*SOLE, "ReadWriteOnce")]


@pytest.mark.parametrize("modes", MODES, ids=["+".join(each) for each in MODES])
@pytest.mark.parametrize("version", SUPPORTED, ids=str)
def test_which_volumes_have_labels_by_default(
    version: KubernetesVersion, modes: tuple[str, ...]
) -> None:
    """Until 1.36 only ReadWriteOncePod volumes have labels; from 1.37 volumes of all modes have."""
    gate = default_settings(version).feature_gates.enabled("SELinuxMount")
    node = SELinux(NODE.file_label, all_modes=gate)
    labeled = modes == SOLE or version == NEWEST
    volume = spec(pv=pv(), access_modes=modes)
    other = LABEL.replace("c1,c2", "c3,c4")
    assert mount_context(volume, using(ONE), node, supported=True) == (LABEL if labeled else None)
    conflict = SELinuxConflict((LABEL, other)) if labeled else None
    assert mount_context(volume, using(ONE, TWO), node, supported=True) == conflict
    left = using(ONE, seLinuxChangePolicy="Recursive")
    assert mount_context(volume, left, node, supported=True) is None
    assert mount_context(volume, using(ONE), node, supported=False) is None
    assert mount_context(volume, using(ONE), SELinux("", all_modes=gate), supported=True) is None
    inline = spec(pv=None, access_modes=modes)
    assert mount_context(inline, using(ONE), node, supported=True) is None


def test_the_default_can_be_turned_off() -> None:
    gates = default_settings(featureGates={"SELinuxMount": False}).feature_gates
    node = SELinux(NODE.file_label, all_modes=gates.enabled("SELinuxMount"))
    shared = spec(pv=pv(), access_modes=("ReadWriteMany",))
    assert mount_context(shared, using(ONE, TWO), node, supported=True) is None


def planned(*pods: str, uid: str = "new", device: Presence = Presence.THERE) -> OperationsPlan:
    """Plan for a volume that is staged without a label, and a pod that needs it with one."""
    mounts = {
        each: PodMount(PublishedOnDisk("p", "vol", each, "pv1", "/x"), Presence.THERE)
        for each in pods
    }
    staged = StagedOnDisk("kubernetes.io/csi", "vol", "/s")
    volume = Volume("vol", "kubernetes.io/csi", mounts, device, staged)
    desired = PodDemand(uid, (spec("vol", selinux_context=LABEL),))
    return plan([desired], {"vol": volume}, Facts(), 0.0)


def test_another_label_is_unstaged_first() -> None:
    made = planned()
    assert [each.kind for each in made.operations] == [OperationKind.UNSTAGE]
    assert made.waits["new", "v"].cause is WaitCause.SELINUX_CONFLICT


def test_not_while_another_pod_has_it() -> None:
    made = planned("old")
    assert not made.operations
    assert "different SELinux label" in made.waits["new", "v"].message


def test_a_pod_that_has_it_keeps_it_whatever_its_label() -> None:
    made = planned("new")
    assert not made.operations
    assert not made.waits


def test_an_unstaged_volume_is_staged_with_the_label() -> None:
    assert [each.kind for each in planned(device=Presence.ABSENT).operations] == [
        OperationKind.STAGE
    ]


def test_label_of_the_machine(tmp_path: Path) -> None:
    assert not file_label(tmp_path)
    (tmp_path / "sys/fs/selinux").mkdir(parents=True)
    (tmp_path / "sys/fs/selinux/enforce").touch()
    assert file_label(tmp_path) == DEFAULT_LABEL
    contexts = tmp_path / "etc/selinux/mine/contexts"
    contexts.mkdir(parents=True)
    (tmp_path / "etc/selinux/config").write_text("SELINUX=permissive\nSELINUXTYPE=mine\n")
    (contexts / "lxc_contexts").write_text(
        'process = "system_u:system_r:container_t:s0"\nfile = "system_u:object_r:my_t:s0"\n'
    )
    assert file_label(tmp_path) == "system_u:object_r:my_t:s0"
