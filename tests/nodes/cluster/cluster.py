"""A control plane on this machine with three virtual nodes, and kubectl for tests of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from kubeletpy.base.api.types import JSON
from tests.nodes.cluster.member import NODES, Member, pod_subnet
from tools.control_plane.building import PROXY, programs
from tools.control_plane.plane import ControlPlane
from tools.control_plane.releases import NEWEST
from tools.env.debian import unpacked
from tools.env.kubectl import kubectl
from tools.env.process import CommandError
from tools.lab.kinds import uml_kernel
from tools.lab.network import HOST, Network, device_argument
from tools.lab.uml import UserModeLinux

MEMORY_MIB = 1536
WITHIN_S = 900
"""Timeout for changes that take seconds on a quiet machine; a pod takes a minute at worst."""


class HasAdmin(Protocol):
    """A cluster, for those who administer it."""

    @property
    def admin(self) -> Path:
        """A kubeconfig of the administrator."""

    @property
    def directory(self) -> Path:
        """A directory for files of kubectl."""


class Namespace:
    """A namespace of the cluster, and kubectl in it."""

    def __init__(self, plane: HasAdmin, name: str) -> None:
        self.name = name
        self._plane = plane
        self._kubectl = kubectl("new")

    def kubectl(self, *parts: str, timeout: float = WITHIN_S + 30) -> str:
        """The output of kubectl, as the cluster's administrator. Raises CommandError."""
        namespace = f"--namespace={self.name}"
        return self._kubectl.run(self._plane.admin, namespace, *parts, timeout=timeout).strip()

    def kubectl_process(self, *parts: str) -> AbstractContextManager[subprocess.Popen[str]]:
        """kubectl as a process with pipes, which ends with the ``with``."""
        return self._kubectl.process(self._plane.admin, f"--namespace={self.name}", *parts)

    def apply(self, *objects: JSON) -> None:
        """`kubectl apply` of objects."""
        file = self._plane.directory / f"apply-{self.name}.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
        self.kubectl("apply", "-f", str(file))

    def wait(self, condition: str, *objects: str) -> None:
        """`kubectl wait`; an error shows the objects of the namespace."""
        self._await("wait", f"--for={condition}", *objects)

    def wait_created(self, *objects: str) -> None:
        """Wait until objects exist; kubectl fails where one of several exists before others."""
        for each in objects:
            self.wait("create", each)

    def rollout(self, *objects: str) -> None:
        """`kubectl rollout status` of each object."""
        for each in objects:
            self._await("rollout", "status", each)

    def _await(self, *parts: str) -> None:
        try:
            self.kubectl(*parts, f"--timeout={WITHIN_S}s")
        except CommandError as error:
            raise CommandError(f"{error}\n{self.story()}") from error

    def story(self) -> str:
        """The namespace's objects and events, for a person."""
        reported = self.kubectl("get", "all,nodes", "-o", "wide")
        return f"{reported}\n{self.kubectl('events')}"

    def get(self, kind: str, name: str) -> JSON:
        """An object."""
        found: JSON = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def pods(self, app: str) -> list[JSON]:
        """Pods with a label app=..., in the order of their names."""
        found = json.loads(self.kubectl("get", "pods", f"--selector=app={app}", "-o", "json"))
        return sorted(found["items"], key=lambda each: str(each["metadata"]["name"]))

    def remove(self) -> None:
        """Delete it with everything in it, and wait until that has ended."""
        self.kubectl("delete", "namespace", self.name, f"--timeout={WITHIN_S}s")


class Cluster:
    """A running cluster; `members` are its nodes by number."""

    def __init__(self, plane: ControlPlane, members: list[Member], network: Network) -> None:
        self.plane, self.members, self.network = plane, members, network
        self.default = Namespace(plane, "default")

    def member_of(self, pod: JSON) -> Member:
        """The node of a pod."""
        name = pod["spec"]["nodeName"]
        return next(each for each in self.members if each.name == name)

    def new_namespace(self, name: str) -> Namespace:
        """Create a namespace that takes pods."""
        made = Namespace(self.plane, name)
        made.kubectl("create", "namespace", name)
        # controllers make it; pods are rejected before
        made.wait_created("serviceaccount/default", "configmap/kube-root-ca.crt")
        return made

    def wait_ready(self, *members: Member) -> None:
        """Wait until nodes exist and are Ready."""
        names = [f"node/{each.name}" for each in members or self.members]
        self.default.wait_created(*names)
        self.default.wait("condition=Ready", *names)

    def leave(self, directory: Path) -> None:
        """Write down what the API shows, and copy the logs of the control plane."""
        directory.mkdir(parents=True, exist_ok=True)
        reported = self.default.kubectl("get", "all,nodes,pvc,pv", "-A", "-o", "wide")
        (directory / "objects.log").write_text(reported)
        (directory / "events.log").write_text(self.default.kubectl("events", "-A"))
        for daemon in (self.plane.api_server, self.plane.controllers, self.plane.scheduler):
            (directory / daemon.log.name).write_bytes(daemon.log.read_bytes())


@contextmanager
def running_cluster(directory: Path, disk: Path, suite: str, kernel: str = "") -> Iterator[Cluster]:
    """A cluster with Ready nodes; until the block ends, this thread is in its network.

    ``disk``: of the nodes, with a journal; ``kernel``: the Debian of their kernel.
    Raises CommandError, GuestError or NotReadyError.
    """
    built = programs(NEWEST)
    programs(NEWEST, PROXY)
    for package in ("etcd-server", "kubectl"):  # its network has no way to an archive
        unpacked(package, "testing")
    unpacked("apparmor", suite)
    linux = uml_kernel(suite, kernel)
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        stack.enter_context(network.entered())
        plane = ControlPlane(directory / "plane", built, HOST)
        stack.callback(plane.stop)
        plane.start()
        machines = []
        for number in range(NODES):
            network.add_tap(number)
            network.route(pod_subnet(number), number)
            machine = UserModeLinux(
                disk,
                directory / f"m{number}",
                memory_mib=MEMORY_MIB,
                more=(device_argument(number),),
                kernel=linux,
            )
            stack.callback(machine.cut_power)
            machines.append(machine)

        def join(number: int) -> Member:
            machines[number].boot()
            own = directory / f"n{number}"
            own.mkdir()
            member = Member(machines[number], own, suite, number)
            member.join(plane, built)
            return member

        with ThreadPoolExecutor() as together:  # threads are in the network of this one
            made = Cluster(plane, list(together.map(join, range(NODES))), network)
        made.wait_ready()
        yield made
