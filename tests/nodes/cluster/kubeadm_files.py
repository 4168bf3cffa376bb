"""The files of a machine on which kubeadm makes a node, as its Debian packages and an administrator
write them (pure).

The units are those of the packages kubelet and kubeadm of pkgs.k8s.io.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.nodes.cluster.member import POD_NETWORK
from tools.control_plane.plane import SERVICES
from tools.control_plane.releases import NEWEST

VERSION = f"v{NEWEST}"
KUBELET_UNIT = (Path(__file__).parent / "data" / "kubelet.service").read_text()
KUBEADM_DROP_IN = (
    Path(__file__).parents[2] / "integration" / "certificates" / "data" / "10-kubeadm.conf"
).read_text()
_API = "kubeadm.k8s.io/v1beta4"
_WAITS = (
    *("controlPlaneComponentHealthCheck", "kubeletHealthCheck", "kubernetesAPICall"),
    *("etcdAPICall", "tlsBootstrap", "discovery"),
)
_TIMEOUTS = dict.fromkeys(_WAITS, "20m")
"""For programs that take seconds on a quiet machine, and minutes on one slow processor."""
_NODE = {"criSocket": "unix:///run/containerd/containerd.sock", "imagePullPolicy": "Never"}
"""There is no registry: what kubeadm pulls in advance is there, or is not part of the test."""
_ELECTION = {"leader-elect-lease-duration": "90s", "leader-elect-renew-deadline": "75s"}
"""Programs that have not renewed their lease in time exit: after 10 s by default."""
_COMPONENTS = {
    "apiServer": {"etcd-healthcheck-timeout": "10s", "etcd-readycheck-timeout": "10s"},
    "controllerManager": _ELECTION,
    "scheduler": _ELECTION,
}
"""Field of the cluster's configuration -> flags for a control plane on one slow processor.

Without them the programs restart and lose their readiness under any kubelet there.
"""


def init_config(address: str) -> str:
    """The configuration of `kubeadm init` on a node with that address."""
    return _documents(
        {
            "kind": "InitConfiguration",
            "localAPIEndpoint": {"advertiseAddress": address},
            "nodeRegistration": _NODE,
            "timeouts": _TIMEOUTS,
        },
        {
            "kind": "ClusterConfiguration",
            "kubernetesVersion": VERSION,
            **{name: _extra_arguments(flags) for name, flags in _COMPONENTS.items()},
            "etcd": {"local": _extra_arguments({"unsafe-no-fsync": "true"})},
            "networking": {"serviceSubnet": SERVICES, "podSubnet": POD_NETWORK},
        },
    )


def join_config(server: str, token: str, ca_hash: str) -> str:
    """The configuration of `kubeadm join` with a token; ``server`` is HOST:PORT."""
    discovery = {"apiServerEndpoint": server, "token": token, "caCertHashes": [ca_hash]}
    return _documents(
        {
            "kind": "JoinConfiguration",
            "discovery": {"bootstrapToken": discovery},
            "nodeRegistration": _NODE,
            "timeouts": _TIMEOUTS,
        }
    )


def _extra_arguments(flags: Mapping[str, str]) -> dict[str, object]:
    return {"extraArgs": [{"name": name, "value": value} for name, value in flags.items()]}


def _documents(*objects: dict[str, object]) -> str:
    return "---\n".join(json.dumps({"apiVersion": _API, **each}) + "\n" for each in objects)
