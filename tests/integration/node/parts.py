"""Parts of a test node."""

from __future__ import annotations

import os
from pathlib import Path

from kubeletpy.base.api.types import JSON
from tests.integration.node.api import ApiServer
from tools.env.containerd import Containerd
from tools.env.kubectl import Kubectl
from tools.env.ports import free_port
from tools.env.process import Daemon


class Parts:
    """One node's; `directory` holds all of it and must be short (sockets).

    Attributes:
        api: the embedded API, on a thread of this process.
        agent: the process `kubeletpy run`.
        containerd: what it runs on.
    """

    def __init__(
        self,
        directory: Path,
        containerd: Containerd,
        kubectls: dict[str, Kubectl],
        name: str = "test-node",
        config: JSON | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.name = name
        self.containerd = containerd
        self.api = ApiServer(directory / "api", name)
        self.agent = Daemon("agent", directory)
        self.pod_logs = directory / "pod-logs"
        self.root_dir = directory / "kubelet"
        self.manifests = directory / "manifests"
        self.health_port = free_port()
        self.port = free_port()
        self.cgroup_root = f"/kpt-{os.getpid()}-{os.urandom(3).hex()}"
        self._kubectls = kubectls
        self._config = config or {}
