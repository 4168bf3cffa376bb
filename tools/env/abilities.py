"""Abilities of a runtime that tests need, found by queries and trials, never by its name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc

from kubeletpy.remote.generated import api_pb2 as pb
from tools.env.cri import RawRuntime
from tools.env.images import BUSYBOX
from tools.env.waiting import wait_until

_REFUSED = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNKNOWN)


def abilities(raw: RawRuntime) -> dict[str, bool]:
    """Abilities that a test can need (``@pytest.mark.needs``), and whether the runtime has them."""
    return {name: ask(raw) for name, ask in _QUESTIONS.items()}


def _events(raw: RawRuntime) -> bool:
    """Whether an event stream stays open for a second; otherwise it is refused, or ends at once."""
    try:
        for _ in raw.runtime.GetContainerEvents(pb.GetEventsRequest(), timeout=1):
            return True
    except grpc.RpcError as error:
        return error.code() not in _REFUSED
    return False


def _user_namespaces(raw: RawRuntime) -> bool:
    status = raw.runtime.Status(pb.StatusRequest(), timeout=10)
    return any(handler.features.user_namespaces for handler in status.runtime_handlers)


def _recursive_read_only_mounts(raw: RawRuntime) -> bool:
    status = raw.runtime.Status(pb.StatusRequest(), timeout=10)
    return any(handler.features.recursive_read_only_mounts for handler in status.runtime_handlers)


def _supplemental_groups_policy(raw: RawRuntime) -> bool:
    status = raw.runtime.Status(pb.StatusRequest(), timeout=10)
    return status.features.supplemental_groups_policy  # type: ignore[no-any-return]


def _runtime_classes(raw: RawRuntime) -> bool:
    """Whether the runtime reports its handlers."""
    return bool(raw.runtime.Status(pb.StatusRequest(), timeout=10).runtime_handlers)


def _image_volumes(part: str, desired: str) -> Callable[[RawRuntime], bool]:
    """Mount busybox, or a part of it, into busybox, and check that a file is there."""

    def ask(raw: RawRuntime) -> bool:
        image = pb.ImageSpec(image=BUSYBOX, user_specified_image=BUSYBOX)
        mount = pb.Mount(container_path="/image", image=image, image_sub_path=part, readonly=True)
        config = _as_pods_have_it(raw, "image-volume")
        sandbox = raw.run_sandbox(config)
        stays = ["sh", "-c", "trap exit TERM; sleep 60 & wait"]
        try:
            made = raw.create(sandbox, config, BUSYBOX, stays, mounts=[mount])
            raw.start(made)
            return raw.exec(made, "test", "-e", f"/image/{desired}")[0] == 0
        except grpc.RpcError:
            return False
        finally:
            raw.remove_sandbox(sandbox)

    return ask


def _waits_for_children(raw: RawRuntime) -> bool:
    """Whether a command past its time limit is answered only when its child has ended, too."""
    config = _as_pods_have_it(raw, "children")
    sandbox = raw.run_sandbox(config)
    try:
        made = raw.create(sandbox, config, BUSYBOX, ["sleep", "60"])
        raw.start(made)
        command = ["sh", "-c", "(sleep 5; touch /ended); true"]
        request = pb.ExecSyncRequest(container_id=made, cmd=command, timeout=1)
        with suppress(grpc.RpcError):
            raw.runtime.ExecSync(request, timeout=60)
        return raw.exec(made, "test", "-e", "/ended")[0] == 0
    finally:
        raw.remove_sandbox(sandbox)


def _sandbox_process(raw: RawRuntime) -> bool:
    """Whether a sandbox is a process, which can be killed."""
    config = _as_pods_have_it(raw, "process")
    sandbox = raw.run_sandbox(config)
    try:
        return raw.pid(sandbox) > 0
    finally:
        raw.remove_sandbox(sandbox)


def _cri_logs(raw: RawRuntime) -> bool:
    """Whether a container's log is a file in the CRI's format."""
    with TemporaryDirectory() as folder:
        config = _as_pods_have_it(raw, "logs", folder)
        sandbox = raw.run_sandbox(config)
        try:
            raw.start(raw.create(sandbox, config, BUSYBOX, ["sh", "-c", "echo written"]))
            log = Path(folder) / "main.log"
            wait_until(lambda: log.exists() and "written" in log.read_text(), "a line in a log")
            return not log.is_symlink()
        finally:
            raw.remove_sandbox(sandbox)


def _as_pods_have_it(raw: RawRuntime, name: str, logs: str = "") -> Any:
    """A sandbox whose containers don't share their processes.

    CRI-O then starts no process for the sandbox. On a busy machine that process could miss its
    SIGTERM: with 2 CPU shares it blocks signals late, and CRI-O waits for a minute.
    """
    config = raw.sandbox_config(name, logs=logs)
    config.linux.security_context.namespace_options.pid = pb.CONTAINER
    return config


def _call(name: str, request: object) -> Callable[[RawRuntime], bool]:
    """Whether the runtime has a call at all."""

    def ask(raw: RawRuntime) -> bool:
        try:
            getattr(raw.runtime, name)(request, timeout=10)
        except grpc.RpcError as error:
            return error.code() not in _REFUSED
        return True

    return ask


_QUESTIONS: dict[str, Callable[[RawRuntime], bool]] = {
    "pod events": _events,
    "user namespaces": _user_namespaces,
    "recursive read-only mounts": _recursive_read_only_mounts,
    "supplemental groups policy": _supplemental_groups_policy,
    "runtime handlers": _runtime_classes,
    "image volumes": _image_volumes("", "bin/sh"),
    "parts of image volumes": _image_volumes("bin", "sh"),
    "waits for children of commands": _waits_for_children,
    "sandbox processes": _sandbox_process,
    "logs in the CRI's format": _cri_logs,
    "pod statistics": _call("ListPodSandboxStats", pb.ListPodSandboxStatsRequest()),
    "containerd's services": lambda raw: raw.serves(
        "/containerd.services.content.v1.Content/ListStatuses"
    ),
    "sandbox metrics": _call("ListMetricDescriptors", pb.ListMetricDescriptorsRequest()),
    "cgroup driver": _call("RuntimeConfig", pb.RuntimeConfigRequest()),
    "update of sandboxes": _call(
        "UpdatePodSandboxResources", pb.UpdatePodSandboxResourcesRequest()
    ),
}
