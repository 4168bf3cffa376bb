"""Security contexts in CRI terms (docs/reference/behaviour.md, j)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.runtime_status import ContainerConfigError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.config.security_context import (
    build_security_context,
    effective_security_context,
    verify_image_user,
    verify_run_as_non_root,
)
from kubeletpy.runtime_manager.config.settings import (
    RuntimeSettings,
    UserNamespaceRange,
    namespace_options,
)
from tests.kit.records import container, make_pod

SETTINGS = RuntimeSettings(seccomp_root="/kubelet/seccomp", thermal_throttle_paths=("/sys/cpu0",))
PROFILE = cri.SecurityProfile


def secured(of_pod: Any = None, of_container: Any = None, **spec: Any) -> Any:
    fields = {} if of_container is None else {"securityContext": of_container}
    if of_pod is not None:
        spec["securityContext"] = of_pod
    return make_pod(container("app", **fields), **spec)


def built(
    of_pod: Any = None, of_container: Any = None, user: Any = None, **more: Any
) -> cri.LinuxContainerSecurityContext:
    settings = more.pop("settings", SETTINGS)
    target = more.pop("target_id", "")
    userns = more.pop("userns", None)
    groups = more.pop("extra_groups", ())
    pod = secured(of_pod, of_container, **more)
    return build_security_context(
        pod, pod.containers[0], settings, user, target_id=target, userns=userns, extra_groups=groups
    )


def test_the_container_wins_field_by_field() -> None:
    pod = secured(
        {"runAsUser": 1, "runAsGroup": 2, "runAsNonRoot": True, "fsGroup": 3},
        {"runAsUser": 0, "runAsNonRoot": False, "privileged": True},
    )
    assert effective_security_context(pod, pod.containers[0]) == {
        "runAsUser": 0,
        "runAsGroup": 2,
        "runAsNonRoot": False,
        "privileged": True,
    }


@pytest.mark.parametrize(
    ("run_as", "image", "uid", "username"),
    [
        (5, 7, 5, ""),
        (0, 7, 0, ""),
        (None, 7, 7, ""),
        (None, "app", None, "app"),
        (5, "app", 5, ""),
        (None, None, 0, ""),
        (None, "", 0, ""),
    ],
)
def test_the_user_of_a_container(run_as: Any, image: Any, uid: int | None, username: str) -> None:
    security = built({} if run_as is None else {"runAsUser": run_as}, user=image)
    assert (security.run_as_user.value if security.HasField("run_as_user") else None) == uid
    assert security.run_as_username == username


def test_simple_fields() -> None:
    security = built(
        {"runAsGroup": 4, "seLinuxOptions": {"level": "s0:c1"}},
        {
            "privileged": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
            "seLinuxOptions": {"user": "u", "role": "r", "type": "t", "level": "l"},
        },
    )
    assert security.privileged
    assert security.readonly_rootfs
    assert security.no_new_privs
    assert security.run_as_group.value == 4
    assert list(security.capabilities.add_capabilities) == ["NET_ADMIN"]
    assert list(security.capabilities.drop_capabilities) == ["ALL"]
    assert security.selinux_options == cri.SELinuxOption(user="u", role="r", type="t", level="l")


def test_privileges_may_escalate_if_that_is_allowed() -> None:
    assert not built(None, {"allowPrivilegeEscalation": True}).no_new_privs


@pytest.mark.parametrize(("mount", "hidden"), [("Unmasked", False), ("Default", True)])
def test_proc_mount(mount: str, hidden: bool) -> None:
    security = built(None, {"procMount": mount})
    assert bool(security.masked_paths) is hidden
    assert bool(security.readonly_paths) is hidden


def test_groups() -> None:
    context = {"fsGroup": 0, "supplementalGroups": [10, 20], "supplementalGroupsPolicy": "Strict"}
    security = built(context, extra_groups=(99,))
    assert list(security.supplemental_groups) == [0, 10, 20, 99]
    assert security.supplemental_groups_policy == cri.Strict
    assert built({}).supplemental_groups_policy == cri.Merge
    with pytest.raises(ContainerConfigError, match="unsupported supplementalGroupsPolicy: Loose"):
        built({"supplementalGroupsPolicy": "Loose"})
    with pytest.raises(ContainerConfigError, match=r"unsupported supplementalGroupsPolicy: $"):
        built({"supplementalGroupsPolicy": ""})


LOCAL = {"type": "Localhost", "localhostProfile": "dir/p.json"}
SECCOMP_ROWS = [
    ("none", None, None, False, PROFILE.Unconfined, ""),
    ("none-with-default", None, None, True, PROFILE.RuntimeDefault, ""),
    ("pod", {"type": "RuntimeDefault"}, None, False, PROFILE.RuntimeDefault, ""),
    (
        "container-wins",
        {"type": "RuntimeDefault"},
        LOCAL,
        False,
        PROFILE.Localhost,
        "/kubelet/seccomp/dir/p.json",
    ),
    ("unconfined-despite-default", None, {"type": "Unconfined"}, True, PROFILE.Unconfined, ""),
]


@pytest.mark.parametrize(
    ("of_pod", "of_container", "default", "kind", "ref"),
    [r[1:] for r in SECCOMP_ROWS],
    ids=[r[0] for r in SECCOMP_ROWS],
)
def test_seccomp(of_pod: Any, of_container: Any, default: bool, kind: int, ref: str) -> None:
    security = built(
        {"seccompProfile": of_pod} if of_pod else None,
        {"seccompProfile": of_container} if of_container else None,
        settings=RuntimeSettings(seccomp_root="/kubelet/seccomp", seccomp_default=default),
    )
    assert (security.seccomp.profile_type, security.seccomp.localhost_ref) == (kind, ref)


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize(
    ("profile", "reported"),
    [
        ({}, "missing"),
        ({"type": ""}, '""'),
        ({"type": "Runtimedefault"}, '"Runtimedefault"'),
        ({"type": "localhost", "localhostProfile": "p.json"}, '"localhost"'),
        ({"localhostProfile": "p.json"}, "missing"),
    ],
)
def test_an_unknown_seccomp_type_is_refused(profile: Any, reported: str, default: bool) -> None:
    settings = RuntimeSettings(seccomp_root="/kubelet/seccomp", seccomp_default=default)
    why = f"container app: seccompProfile.type is {reported}, not one of RuntimeDefault, Localhost"
    for levels in ((profile, None), (None, {"seccompProfile": profile})):
        of_pod, of_container = levels
        of_pod = None if of_pod is None else {"seccompProfile": of_pod}
        with pytest.raises(ContainerConfigError) as refused:
            built(of_pod, of_container, settings=settings)
        assert str(refused.value).startswith(why)


@pytest.mark.parametrize(
    ("of_pod", "of_container", "field"),
    [
        (None, {"runAsUser": 2**32}, "runAsUser"),
        (None, {"runAsUser": -1}, "runAsUser"),
        ({"runAsGroup": 2**32}, None, "runAsGroup"),
        ({"fsGroup": -(2**32)}, None, "fsGroup"),
        ({"supplementalGroups": [5, 2**32]}, None, "supplementalGroups"),
    ],
)
def test_ids_that_a_runtime_may_cut_to_those_of_root(
    of_pod: Any, of_container: Any, field: str
) -> None:
    with pytest.raises(ContainerConfigError, match=f"securityContext.{field} is -?[0-9]+, not an"):
        built(of_pod, of_container)


@pytest.mark.parametrize("path", [None, "", "../x", "a/../../x", "/etc/passwd", "..", "a/.."])
def test_bad_seccomp_paths_are_refused(path: str | None) -> None:
    profile = {"type": "Localhost", "localhostProfile": path}
    with pytest.raises(ContainerConfigError, match="localhostProfile"):
        built(None, {"seccompProfile": profile})


@pytest.mark.parametrize(
    "name",
    ["../x", "a/../b", "..", "a\nb", "a\0b", "a\x1b[0m", " a", "a ", "\n", "x" * 4096, "\u202ea"],
)
def test_apparmor_names_that_are_no_names_are_refused(name: str) -> None:
    profile = {"type": "Localhost", "localhostProfile": name}
    with pytest.raises(ContainerConfigError, match="localhost apparmor profile name") as caught:
        built(None, {"appArmorProfile": profile})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500
    with pytest.raises(ContainerConfigError, match="localhost apparmor profile name"):
        built({"appArmorProfile": profile}, None)


def test_apparmor_names_of_other_namespaces_pass() -> None:
    for name in ("x" * 4095, ":ns:profile", "/usr/bin/x", "a b", "docker-default//child"):
        profile = {"type": "Localhost", "localhostProfile": name}
        assert built(None, {"appArmorProfile": profile}).apparmor.localhost_ref == name


APPARMOR_ROWS = [
    ("default", {"type": "RuntimeDefault"}, PROFILE.RuntimeDefault, "", "runtime/default"),
    ("unconfined", {"type": "Unconfined"}, PROFILE.Unconfined, "", "unconfined"),
    (
        "localhost",
        {"type": "Localhost", "localhostProfile": "mine"},
        PROFILE.Localhost,
        "mine",
        "localhost/mine",
    ),
]


@pytest.mark.parametrize(
    ("profile", "kind", "ref", "legacy"),
    [r[1:] for r in APPARMOR_ROWS],
    ids=[r[0] for r in APPARMOR_ROWS],
)
def test_apparmor_fills_both_fields(profile: Any, kind: int, ref: str, legacy: str) -> None:
    annotated = {
        "metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/app": legacy}}
    }
    for security in (
        built({"appArmorProfile": profile}),
        built({"appArmorProfile": {"type": "Unconfined"}}, {"appArmorProfile": profile}),
        built(None, None, **annotated),
    ):
        assert security.HasField("apparmor")
        assert (security.apparmor.profile_type, security.apparmor.localhost_ref) == (kind, ref)
        assert security.apparmor_profile == legacy


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        ("localhost", 'unknown apparmor profile type: "localhost"'),
        ("other/x", 'unknown apparmor profile type: "other/x"'),
        ("localhost/", "missing localhost apparmor profile name"),
    ],
)
def test_bad_apparmor_annotations_are_refused(annotation: str, why: str) -> None:
    key = "container.apparmor.security.beta.kubernetes.io/app"
    with pytest.raises(ContainerConfigError) as refused:
        built(None, None, metadata={"annotations": {key: annotation}})
    assert str(refused.value) == why


def test_null_fields_count_as_unset() -> None:
    pod = secured({"runAsUser": 5, "runAsGroup": None}, {"runAsUser": None, "privileged": True})
    assert effective_security_context(pod, pod.containers[0]) == {
        "runAsUser": 5,
        "privileged": True,
    }


@pytest.mark.parametrize(
    "profile",
    [{"type": "Localhost"}, {"type": "Magic"}, {"type": "Magic", "localhostProfile": "x"}, {}],
)
def test_bad_apparmor_profiles_are_refused(profile: Any) -> None:
    with pytest.raises(ContainerConfigError, match="apparmor"):
        built(None, {"appArmorProfile": profile})


NON_ROOT_ROWS = [
    ("explicit-root", 0, 7, "runAsUser breaks non-root policy"),
    ("explicit-user", 5, 0, None),
    ("explicit-largest", 2**31 - 1, 0, None),
    ("explicit-root-in-32-bits", 2**32, 7, "runAsUser breaks non-root policy"),
    ("explicit-negative", -(2**32), 7, "runAsUser breaks non-root policy"),
    ("image-name", None, "app", "image has non-numeric user (app), cannot verify"),
    ("image-root", None, 0, "image will run as root"),
    ("image-none", None, None, "image will run as root"),
    ("image-empty", None, "", "image will run as root"),
    ("image-negative", None, -1, "image has an invalid user id (-1)"),
    ("image-too-large", None, 2**31, "image has an invalid user id (2147483648)"),
    ("image-number", None, 1000, None),
    ("image-least", None, 1, None),
    ("image-largest", None, 2**31 - 1, None),
]


@pytest.mark.parametrize(
    ("run_as", "image", "message"),
    [r[1:] for r in NON_ROOT_ROWS],
    ids=[r[0] for r in NON_ROOT_ROWS],
)
@pytest.mark.parametrize("level", ["pod", "container"])
def test_run_as_non_root(level: str, run_as: Any, image: Any, message: str | None) -> None:
    context: dict[str, Any] = {"runAsNonRoot": True}
    if run_as is not None:
        context["runAsUser"] = run_as
    pod = secured(context) if level == "pod" else secured(None, context)
    if message is None:
        verify_run_as_non_root(pod, pod.containers[0], image)
        return
    with pytest.raises(ContainerConfigError) as caught:
        verify_run_as_non_root(pod, pod.containers[0], image)
    assert message in str(caught.value)
    assert str(caught.value).endswith('(pod: "web_prod(uid-1)", container: app)')


@pytest.mark.parametrize(
    ("image", "uids", "run_as", "refused"),
    [
        (1234, (), None, False),
        (1234, ((0, 1),), None, True),
        (1234, ((0, 1),), 0, False),
        (1234, ((0, 1), (1, 65536)), None, False),
        (70000, ((0, 1), (1, 65536)), None, True),
        ("app", ((0, 1),), None, True),
        *((image, ((1000, 1),), None, True) for image in (0, None, "")),
        ("app", ((0, 1), (1, 65536)), None, False),
        *((image, ((0, 1),), None, False) for image in (0, None, "", "root")),
    ],
)
def test_a_user_of_an_image_that_a_node_without_root_lacks_is_refused(
    image: Any, uids: tuple[tuple[int, int], ...], run_as: int | None, refused: bool
) -> None:
    pod = secured({} if run_as is None else {"runAsUser": run_as})
    if not refused:
        verify_image_user(pod, pod.containers[0], image, uids)
        return
    with pytest.raises(
        ContainerConfigError, match=f"as user {image or 'root'}, .*runAsUser: {uids[0][0]}"
    ):
        verify_image_user(pod, pod.containers[0], image, uids)


def test_a_container_may_lift_the_pods_non_root_rule() -> None:
    pod = secured({"runAsNonRoot": True}, {"runAsNonRoot": False})
    verify_run_as_non_root(pod, pod.containers[0], 0)


NAMESPACE_ROWS = [
    ("own", {}, "", (cri.POD, cri.POD, cri.CONTAINER, "")),
    ("host-network", {"hostNetwork": True}, "", (cri.NODE, cri.POD, cri.CONTAINER, "")),
    ("host-ipc", {"hostIPC": True}, "", (cri.POD, cri.NODE, cri.CONTAINER, "")),
    (
        "host-pid",
        {"hostPID": True, "shareProcessNamespace": True},
        "t",
        (cri.POD, cri.POD, cri.NODE, ""),
    ),
    ("shared-pid", {"shareProcessNamespace": True}, "t", (cri.POD, cri.POD, cri.POD, "")),
    ("target", {}, "t", (cri.POD, cri.POD, cri.TARGET, "t")),
]


@pytest.mark.parametrize(
    ("spec", "target", "expected"),
    [r[1:] for r in NAMESPACE_ROWS],
    ids=[r[0] for r in NAMESPACE_ROWS],
)
def test_namespaces(spec: dict[str, Any], target: str, expected: tuple[Any, ...]) -> None:
    options = namespace_options(make_pod(**spec), target_id=target)
    assert (options.network, options.ipc, options.pid, options.target_id) == expected
    assert not options.HasField("userns_options")


def test_user_namespaces() -> None:
    with pytest.raises(ContainerConfigError, match="user namespace") as refused:
        built(hostUsers=False)
    assert refused.value.cause is None, "it is not about root"
    security = built(hostUsers=False, userns=UserNamespaceRange(65536))
    userns = security.namespace_options.userns_options
    assert userns.mode == cri.POD
    for mappings in (userns.uids, userns.gids):
        (mapping,) = mappings
        assert (mapping.host_id, mapping.container_id, mapping.length) == (65536, 0, 65536)
