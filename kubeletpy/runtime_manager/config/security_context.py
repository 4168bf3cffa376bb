"""The security context of one container: pod and container settings, merged, in CRI terms.

Must never weaken what the spec requests: what cannot be expressed or verified is an error. Source:
docs/reference/behaviour.md, j1, j2, j3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import ContainerConfigError, RunAsNonRootError
from kubeletpy.pods.shape import MAX_ID, context_problem, unknown
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.config.settings import (
    RuntimeSettings,
    UserNamespaceRange,
    namespace_options,
    requests_user_namespace,
)

_PROFILES = ("RuntimeDefault", "Localhost", "Unconfined")

ImageUser = int | str | None
"""The user an image names: a uid, a user name, or None when it names none (then it is root)."""

MAX_APPARMOR_NAME = 4095
"""The longest that an API server takes."""
_REPORTED_NAME = 100
APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
MASKED_PATHS = (
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)
READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")

_SHARED_FIELDS = ("runAsUser", "runAsGroup", "runAsNonRoot", "seLinuxOptions", "seccompProfile")


def effective_security_context(pod: Pod, container: api.Container) -> api.SecurityContext:
    """The container's security context over the pod's, field by field."""
    of_pod: Mapping[str, Any] = pod.spec.get("securityContext") or {}
    own: Mapping[str, Any] = container.get("securityContext") or {}
    pairs = (*((name, of_pod.get(name)) for name in _SHARED_FIELDS), *own.items())
    return cast(api.SecurityContext, {name: value for name, value in pairs if value is not None})


def verify_run_as_non_root(pod: Pod, container: api.Container, image_user: ImageUser) -> None:
    """Refuse a container that must not run as root but would, or might.

    Raises:
        RunAsNonRootError: it would run as root, or that cannot be ruled out.
    """
    context = effective_security_context(pod, container)
    if not context.get("runAsNonRoot"):
        return
    where = f'(pod: "{pod.description}", container: {container["name"]})'
    uid = context.get("runAsUser")
    if uid is not None:
        if not 0 < uid <= MAX_ID:
            # a runtime that keeps 32 bits makes root of 2^32
            raise RunAsNonRootError(f"container's runAsUser breaks non-root policy {where}")
        return
    if not image_user:
        raise RunAsNonRootError(f"container has runAsNonRoot and image will run as root {where}")
    if isinstance(image_user, str):
        raise RunAsNonRootError(
            f"container has runAsNonRoot and image has non-numeric user ({image_user}), cannot "
            f"verify user is non-root {where}"
        )
    if not 0 < image_user <= MAX_ID:
        raise RunAsNonRootError(
            f"container has runAsNonRoot and image has an invalid user id ({image_user}). "
            f"(Must be 1-({MAX_ID})): must be between 0 and {MAX_ID}, inclusive {where}"
        )


def verify_image_user(
    pod: Pod, container: api.Container, image_user: ImageUser, uids: Sequence[tuple[int, int]]
) -> None:
    """Refuse the user of an image that a node without root does not have.

    Args:
        uids: (first, count) of the users that it has; empty: all.

    Raises:
        ContainerConfigError: the pod sets no other user.
    """
    if not uids or effective_security_context(pod, container).get("runAsUser") is not None:
        return
    user = image_user or "root"
    uid = 0 if user == "root" else user
    if isinstance(uid, str):
        # the number of a name is in the image's file of users, which only the runtime reads
        known = sum(count for _, count in uids) > 1
    else:
        known = any(first <= uid < first + count for first, count in uids)
    if not known:
        raise ContainerConfigError(
            f"the image of container {container['name']} runs as user {user}, which this node, run "
            f"without root, does not have; set securityContext.runAsUser: {uids[0][0]}, or give "
            "the login subordinate ids (`kubeletpy explain --node` has the command)"
        )


def build_security_context(
    pod: Pod,
    container: api.Container,
    settings: RuntimeSettings,
    image_user: ImageUser,
    *,
    target_id: str = "",
    extra_groups: Sequence[int] = (),
    userns: UserNamespaceRange | None = None,
) -> cri.LinuxContainerSecurityContext:
    """The CRI security context of a container. ``extra_groups``: those of persistent volumes.

    Raises:
        ContainerConfigError: a profile or policy cannot be expressed.
    """
    context = effective_security_context(pod, container)
    of_pod = pod.spec.get("securityContext") or {}
    if requests_user_namespace(pod) and userns is None:
        raise ContainerConfigError(
            "the pod requests a user namespace (hostUsers: false), which this version does not "
            "support"
        )
    if problem := context_problem(of_pod) or context_problem(context):
        raise ContainerConfigError(f"container {container['name']}: {problem}")
    unmasked = context.get("procMount") == "Unmasked"
    policy = groups_policy(of_pod)
    if policy is None:
        raise ContainerConfigError(
            f"unsupported supplementalGroupsPolicy: {of_pod.get('supplementalGroupsPolicy')}"
        )
    apparmor, legacy_apparmor = _apparmor(pod, container)
    security = cri.LinuxContainerSecurityContext(
        privileged=bool(context.get("privileged")),
        namespace_options=namespace_options(pod, userns, target_id),
        readonly_rootfs=bool(context.get("readOnlyRootFilesystem")),
        supplemental_groups=_groups(of_pod, extra_groups),
        supplemental_groups_policy=policy,
        no_new_privs=context.get("allowPrivilegeEscalation") is False,
        masked_paths=() if unmasked else MASKED_PATHS + settings.thermal_throttle_paths,
        readonly_paths=() if unmasked else READONLY_PATHS,
        seccomp=_seccomp(container["name"], context.get("seccompProfile"), settings),
        apparmor=apparmor,
        apparmor_profile=legacy_apparmor,
    )
    _set_user(security, context, image_user)
    capabilities = context.get("capabilities")
    if capabilities:
        security.capabilities.add_capabilities.extend(capabilities.get("add") or ())
        security.capabilities.drop_capabilities.extend(capabilities.get("drop") or ())
    if context.get("seLinuxOptions"):
        security.selinux_options.CopyFrom(selinux_options(context["seLinuxOptions"]))
    return security


def groups_policy(context: api.PodSecurityContext) -> cri.SupplementalGroupsPolicy | None:
    """How the image's /etc/group applies; None for a policy that CRI does not have."""
    name = context.get("supplementalGroupsPolicy")
    if name in (None, "Merge"):
        return cri.Merge
    return cri.Strict if name == "Strict" else None


def selinux_options(options: api.SELinuxOptions) -> cri.SELinuxOption:
    """SELinux labels in CRI terms."""
    return cri.SELinuxOption(
        user=options.get("user"),
        role=options.get("role"),
        type=options.get("type"),
        level=options.get("level"),
    )


def _set_user(
    security: cri.LinuxContainerSecurityContext, context: api.SecurityContext, user: ImageUser
) -> None:
    uid = context.get("runAsUser")
    if uid is not None:
        security.run_as_user.value = uid
    elif isinstance(user, str) and user:
        security.run_as_username = user
    else:
        security.run_as_user.value = user if isinstance(user, int) else 0
    gid = context.get("runAsGroup")
    if gid is not None:
        security.run_as_group.value = gid


def _groups(of_pod: api.PodSecurityContext, extra: Sequence[int]) -> list[int]:
    fs_group = of_pod.get("fsGroup")
    return [
        *(() if fs_group is None else (fs_group,)),
        *(of_pod.get("supplementalGroups") or ()),
        *extra,
    ]


def _seccomp(
    name: str, profile: api.SeccompProfile | None, settings: RuntimeSettings
) -> cri.SecurityProfile:
    if profile is None:
        profile = {"type": "RuntimeDefault" if settings.seccomp_default else "Unconfined"}
    kind = profile.get("type")
    if problem := unknown("seccompProfile.type", kind, _PROFILES):
        raise ContainerConfigError(f"container {name}: {problem}")
    if kind == "RuntimeDefault":
        return cri.SecurityProfile(profile_type=cri.SecurityProfile.RuntimeDefault)
    if kind == "Unconfined":
        return cri.SecurityProfile(profile_type=cri.SecurityProfile.Unconfined)
    path = profile.get("localhostProfile")
    if not path:
        raise ContainerConfigError(
            "localhostProfile must be set if seccompProfile type is Localhost."
        )
    if path.startswith("/") or ".." in path.split("/"):
        raise ContainerConfigError(
            f'seccompProfile.localhostProfile "{path}" must be a relative path without ".."'
        )
    return cri.SecurityProfile(
        profile_type=cri.SecurityProfile.Localhost, localhost_ref=f"{settings.seccomp_root}/{path}"
    )


def _apparmor(pod: Pod, container: api.Container) -> tuple[cri.SecurityProfile | None, str]:
    """The profile in both of CRI's forms: the field, else the old annotation, else the pod's."""
    profile = (container.get("securityContext") or {}).get("appArmorProfile")
    if profile is None:
        legacy = pod.annotations.get(APPARMOR_ANNOTATION + container["name"])
        if legacy:
            profile = _apparmor_of_annotation(legacy)
        else:
            profile = (pod.spec.get("securityContext") or {}).get("appArmorProfile")
    if profile is None:
        return None, ""
    kind, name = profile.get("type"), profile.get("localhostProfile")
    if kind == "RuntimeDefault":
        runtime_default = cri.SecurityProfile(profile_type=cri.SecurityProfile.RuntimeDefault)
        return runtime_default, "runtime/default"
    if kind == "Unconfined":
        return cri.SecurityProfile(profile_type=cri.SecurityProfile.Unconfined), "unconfined"
    if kind != "Localhost":
        raise ContainerConfigError(f'unknown apparmor profile type: "{kind}"')
    if not name:
        raise ContainerConfigError("missing localhost apparmor profile name")
    if len(name) > MAX_APPARMOR_NAME or not name.isprintable() or name != name.strip():
        # the name is a line for the kernel, and a part of a file's name for some runtimes
        raise ContainerConfigError(
            f"the localhost apparmor profile name is no name: {name[:_REPORTED_NAME]!r}"
        )
    if ".." in name.split("/"):
        raise ContainerConfigError(
            f"the localhost apparmor profile name leads upwards: {name[:_REPORTED_NAME]!r}"
        )
    local = cri.SecurityProfile(profile_type=cri.SecurityProfile.Localhost, localhost_ref=name)
    return local, f"localhost/{name}"


def _apparmor_of_annotation(value: str) -> api.AppArmorProfile:
    if value == "runtime/default":
        return {"type": "RuntimeDefault"}
    if value == "unconfined":
        return {"type": "Unconfined"}
    prefix, slash, name = value.partition("/")
    if prefix == "localhost" and slash:
        return {"type": "Localhost", "localhostProfile": name}
    return {"type": value}
