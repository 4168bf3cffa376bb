"""Raw CRI calls, without an agent: readiness of a runtime, smoke tests, and the bench's floor.

Each method makes one call, blocks, and retries nothing: the caller gets the runtime's own answer.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from google.protobuf import message_factory

from kubeletpy.remote.generated import api_pb2 as pb


class Service:
    """The calls of one CRI service as methods of a request and a timeout, from its descriptor."""

    def __init__(self, channel: grpc.Channel, name: str) -> None:
        service = pb.DESCRIPTOR.services_by_name[name]
        for method in service.methods:
            kind = channel.unary_stream if method.server_streaming else channel.unary_unary
            call = kind(
                f"/{service.full_name}/{method.name}",
                request_serializer=message_factory.GetMessageClass(
                    method.input_type
                ).SerializeToString,
                response_deserializer=message_factory.GetMessageClass(
                    method.output_type
                ).FromString,
            )
            setattr(self, method.name, call)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the CRI has no call {name}")


class RawRuntime:
    """Both CRI services on a unix socket, as plain blocking calls (seconds for timeouts)."""

    def __init__(self, socket: Path) -> None:
        options = [("grpc.max_receive_message_length", 16 * 1024 * 1024)]
        self._channel = grpc.insecure_channel(f"unix://{socket}", options=options)
        self.runtime = Service(self._channel, "RuntimeService")
        self.images = Service(self._channel, "ImageService")

    def __enter__(self) -> RawRuntime:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def serves(self, method: str) -> bool:
        """Whether the socket has a streaming call besides the CRI: "/package.Service/Call"."""
        try:
            list(self._channel.unary_stream(method, None, None)(b"", timeout=10))
        except grpc.RpcError as error:
            return error.code() is not grpc.StatusCode.UNIMPLEMENTED
        return True

    def problems(self) -> str:
        """Which conditions of the runtime are not met, as text; empty when it is ready."""
        try:
            status = self.runtime.Status(pb.StatusRequest(), timeout=5).status
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
        needed = {"RuntimeReady", "NetworkReady"}
        bad = [c for c in status.conditions if c.type in needed and not c.status]
        return "; ".join(f"{c.type} is false ({c.reason}: {c.message})" for c in bad)

    def version(self) -> tuple[str, str]:
        """Name and version of the runtime."""
        answer = self.runtime.Version(pb.VersionRequest(version="v1"), timeout=5)
        return answer.runtime_name, answer.runtime_version

    def cgroup_driver(self) -> str | None:
        """The runtime's cgroup driver, cgroupfs or systemd; None: it reports none (before 2.0)."""
        try:
            answer = self.runtime.RuntimeConfig(pb.RuntimeConfigRequest(), timeout=5)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise
        if not answer.HasField("linux"):
            return None
        return "systemd" if answer.linux.cgroup_driver == pb.SYSTEMD else "cgroupfs"

    def sandbox_config(self, name: str, cgroup_parent: str = "", logs: str = "") -> Any:
        """A sandbox configuration with the least in it."""
        uid = str(uuid.uuid4())
        metadata = pb.PodSandboxMetadata(name=name, uid=uid, namespace="default", attempt=0)
        return pb.PodSandboxConfig(
            metadata=metadata,
            hostname=name,
            log_directory=logs,
            labels={"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": name},
            linux=pb.LinuxPodSandboxConfig(cgroup_parent=cgroup_parent),
        )

    def run_sandbox(self, config: Any) -> str:
        """RunPodSandbox; returns the sandbox id."""
        request = pb.RunPodSandboxRequest(config=config)
        return str(self.runtime.RunPodSandbox(request, timeout=60).pod_sandbox_id)

    def pod_ip(self, sandbox: str) -> str:
        """The address of a sandbox."""
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox)
        return str(self.runtime.PodSandboxStatus(request, timeout=10).status.network.ip)

    def create(
        self,
        sandbox: str,
        config: Any,
        image: str,
        command: Sequence[str],
        *,
        name: str = "main",
        env: Mapping[str, str] | None = None,
        mounts: Sequence[Any] = (),
    ) -> str:
        """CreateContainer in the namespaces of the sandbox `config`; returns the container id."""
        namespaces = config.linux.security_context.namespace_options
        context = pb.LinuxContainerSecurityContext(namespace_options=namespaces)
        container = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name=name, attempt=0),
            image=pb.ImageSpec(image=image, user_specified_image=image),
            command=list(command),
            envs=[pb.KeyValue(key=k, value=v.encode()) for k, v in (env or {}).items()],
            mounts=mounts,
            log_path=f"{name}.log" if config.log_directory else "",
            linux=pb.LinuxContainerConfig(security_context=context),
        )
        request = pb.CreateContainerRequest(
            pod_sandbox_id=sandbox, config=container, sandbox_config=config
        )
        return str(self.runtime.CreateContainer(request, timeout=60).container_id)

    def start(self, container: str) -> None:
        """StartContainer."""
        self.runtime.StartContainer(pb.StartContainerRequest(container_id=container), timeout=60)

    def container(self, container: str) -> Any:
        """ContainerStatus."""
        request = pb.ContainerStatusRequest(container_id=container)
        return self.runtime.ContainerStatus(request, timeout=10).status

    def pid(self, name: str) -> int:
        """The process of a container or a sandbox, by its id; 0 when it has none.

        The runtime reports it; otherwise it is the oldest process in the cgroup of that name.
        """
        for call, request in (
            (self.runtime.ContainerStatus, pb.ContainerStatusRequest(container_id=name)),
            (self.runtime.PodSandboxStatus, pb.PodSandboxStatusRequest(pod_sandbox_id=name)),
        ):
            request.verbose = True
            try:
                stated = json.loads(call(request, timeout=10).info.get("info", "{}"))
            except grpc.RpcError:
                continue
            if stated.get("pid"):
                return int(stated["pid"])
        return min(_processes_of(name), default=0)

    def exec(self, container: str, *command: str) -> tuple[int, str]:
        """ExecSync; returns exit code and output."""
        request = pb.ExecSyncRequest(container_id=container, cmd=list(command), timeout=10)
        answer = self.runtime.ExecSync(request, timeout=15)
        return int(answer.exit_code), (answer.stdout + answer.stderr).decode(errors="replace")

    def stop(self, container: str, grace: int = 0) -> None:
        """StopContainer with a grace period in seconds."""
        request = pb.StopContainerRequest(container_id=container, timeout=grace)
        self.runtime.StopContainer(request, timeout=grace + 60)

    def remove_container(self, container: str) -> None:
        """RemoveContainer: the record of one that has ended."""
        request = pb.RemoveContainerRequest(container_id=container)
        self.runtime.RemoveContainer(request, timeout=30)

    def remove_sandbox(self, sandbox: str) -> None:
        """StopPodSandbox and RemovePodSandbox, which also remove its containers and its network."""
        stop = pb.StopPodSandboxRequest(pod_sandbox_id=sandbox)
        self.runtime.StopPodSandbox(stop, timeout=60)
        remove = pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox)
        self.runtime.RemovePodSandbox(remove, timeout=60)

    def sandboxes(self) -> list[Any]:
        """Every sandbox."""
        return list(self.runtime.ListPodSandbox(pb.ListPodSandboxRequest(), timeout=10).items)

    def containers(self) -> list[Any]:
        """Every container."""
        return list(self.runtime.ListContainers(pb.ListContainersRequest(), timeout=10).containers)

    def has_image(self, name: str) -> bool:
        """Whether the runtime has this image."""
        return bool(self.image_id(name))

    def image_id(self, name: str) -> str:
        """The runtime's id of an image, "" if it does not have the image."""
        request = pb.ImageStatusRequest(image=pb.ImageSpec(image=name))
        return str(self.images.ImageStatus(request, timeout=10).image.id)

    def remove_image(self, name: str) -> None:
        """RemoveImage: the image under all its names."""
        request = pb.RemoveImageRequest(image=pb.ImageSpec(image=name))
        self.images.RemoveImage(request, timeout=30)

    def remove_all(self) -> None:
        """Remove every sandbox; the first error is raised after all were tried."""
        errors: list[grpc.RpcError] = []
        for sandbox in self.sandboxes():
            try:
                self.remove_sandbox(sandbox.id)
            except grpc.RpcError as error:
                errors.append(error)
        if errors:
            raise errors[0]


def _processes_of(name: str) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*/cgroup"):
        with contextlib.suppress(OSError):
            lines = entry.read_text().splitlines()
            if any(line.rpartition("/")[2].removesuffix(".scope").endswith(name) for line in lines):
                yield int(entry.parent.name)
