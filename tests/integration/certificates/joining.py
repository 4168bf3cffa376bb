"""A machine as ``kubeadm join`` leaves it: files, flags, and this agent in the kubelet's place."""

from __future__ import annotations

import base64
import os
import shlex
from pathlib import Path

import yaml

from kubeletpy.base.api.types import JSON
from tests.integration.node import agent
from tests.integration.node.machine import ROOT, Node
from tools.env.containerd import Containerd
from tools.env.kubectl import Kubectl

TOKEN_ID, TOKEN_SECRET = "abcdef", "0123456789abcdef"
REQUESTS = "certificatesigningrequests.certificates.k8s.io"
DEPLOY = ROOT / "deploy"


class JoiningNode(Node):
    """A node that gets its identity by TLS bootstrap.

    Attributes:
        kubernetes: stands for /etc/kubernetes.
        kubelet_config: fields on top of what kubeadm writes.
        token_groups: of the bootstrap token; with kubeadm's, requests are approved by themselves.
    """

    def __init__(
        self, directory: Path, containerd: Containerd, kubectls: dict[str, Kubectl]
    ) -> None:
        super().__init__(directory, containerd, kubectls, "joining-node")
        self.kubernetes = directory / "etc-kubernetes"
        self.kubelet_config: JSON = {}
        self.token_groups = "system:bootstrappers:kubeadm:default-node-token"
        self.pki = self.root_dir / "pki"
        self.client_pem = self.pki / "kubelet-client-current.pem"
        self.kubelet_conf = self.kubernetes / "kubelet.conf"

    def prepare(self) -> None:
        """Start the API, make a bootstrap token, and write kubeadm's files."""
        self.api.start()
        self.api.create(
            "secrets",
            "kube-system",
            {
                "metadata": {"name": f"bootstrap-token-{TOKEN_ID}"},
                "type": "bootstrap.kubernetes.io/token",
                "stringData": {
                    "token-id": TOKEN_ID,
                    "token-secret": TOKEN_SECRET,
                    "usage-bootstrap-authentication": "true",
                    "usage-bootstrap-signing": "true",
                    "auth-extra-groups": self.token_groups,
                },
            },
        )
        (self.kubernetes / "pki").mkdir(parents=True, exist_ok=True)
        (self.kubernetes / "manifests").mkdir(exist_ok=True)
        self.root_dir.mkdir(exist_ok=True)
        self._write_files()

    def _write_files(self) -> None:
        ca = (self.directory / "api" / "pki" / "ca.crt").read_bytes()
        (self.kubernetes / "pki" / "ca.crt").write_bytes(ca)
        template = (Path(__file__).parent / "data" / "kubeadm-config.yaml").read_text()
        config = yaml.safe_load(template.replace("/etc/kubernetes", str(self.kubernetes)))
        config |= {
            "cgroupRoot": self.cgroup_root,
            "podLogsDir": str(self.pod_logs),
            "healthzPort": self.health_port,
            "port": self.port,
            # how full this machine is must not matter
            "evictionHard": {},
            **self.kubelet_config,
        }
        (self.root_dir / "config.yaml").write_text(yaml.safe_dump(config))
        (self.root_dir / "kubeadm-flags.env").write_text(
            'KUBELET_KUBEADM_ARGS="'
            f"--container-runtime-endpoint={self.containerd.endpoint} "
            f'--hostname-override={self.name}"\n'
        )
        bootstrap = {
            "apiVersion": "v1",
            "kind": "Config",
            "preferences": {},
            "current-context": "tls-bootstrap-token-user@kubernetes",
            "contexts": [
                {
                    "name": "tls-bootstrap-token-user@kubernetes",
                    "context": {"cluster": "kubernetes", "user": "tls-bootstrap-token-user"},
                }
            ],
            "clusters": [
                {
                    "name": "kubernetes",
                    "cluster": {
                        "certificate-authority-data": base64.b64encode(ca).decode(),
                        "server": self.api.endpoint.url,
                    },
                }
            ],
            "users": [
                {
                    "name": "tls-bootstrap-token-user",
                    "user": {"token": f"{TOKEN_ID}.{TOKEN_SECRET}"},
                }
            ],
        }
        (self.kubernetes / "bootstrap-kubelet.conf").write_text(yaml.safe_dump(bootstrap))

    def command(self) -> list[str]:
        """The kubelet unit's command with our drop-in, on this machine's paths."""
        text = (DEPLOY / "kubelet.service.d" / "20-kubeletpy.conf").read_text()
        variables: dict[str, str] = {}
        for line in (self.root_dir / "kubeadm-flags.env").read_text().splitlines():
            name, _, value = line.partition("=")
            variables[name] = value.strip('"')
        kubeadm_unit = (Path(__file__).parent / "data" / "10-kubeadm.conf").read_text()
        start = ""
        for line in (kubeadm_unit + text).splitlines():
            if line.startswith("Environment="):
                name, _, value = line.removeprefix("Environment=").strip('"').partition("=")
                variables[name] = value
            elif line.startswith("ExecStart=") and line != "ExecStart=":
                start = line.removeprefix("ExecStart=")
        parts: list[str] = []
        for word in shlex.split(start)[1:]:
            parts += variables.get(word[1:], "").split() if word.startswith("$") else [word]
        places = {"/etc/kubernetes": self.kubernetes, "/var/lib/kubelet": self.root_dir}
        for place, here in places.items():
            parts = [word.replace(place, str(here)) for word in parts]
        # settings of the machine itself stay as they are
        parts += ["--keep-kernel-settings", "--make-iptables-util-chains=false"]
        parts += [f"--device-plugins-dir={self.root_dir}/device-plugins"]
        return [*agent.COMMAND, *parts, f"--root-dir={self.root_dir}"]

    def start_agent(self, *flags: str) -> None:
        """Start the agent as the unit does."""
        self.agent.start([*self.command(), *flags], env={**os.environ, "PYTHONPATH": str(ROOT)})

    def requests(self, signer: str = "") -> list[JSON]:
        """The certificate requests there are, oldest first, maybe of one signer only."""
        found = [r for r in self.api.all(REQUESTS) if signer in r["spec"]["signerName"]]
        return sorted(found, key=lambda r: r["metadata"]["creationTimestamp"])
