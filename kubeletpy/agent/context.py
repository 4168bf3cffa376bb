"""Inputs common to all parts of the composition root."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kubeletpy.agent.outside import Outside
from kubeletpy.agent.signals import Signals
from kubeletpy.base.backlog import Backlog
from kubeletpy.base.structs import Struct
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.config.gates import FeatureGates
from kubeletpy.kubeapi.events.kept import KeptEvents
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.node.addresses import NodeAddresses
from kubeletpy.node.options import NodeOptions


class BuildContext(Struct, frozen=True, kw_only=True):
    """Settings, surroundings and signals of one agent; ``started_at`` is in Unix seconds.

    ``backlog`` are the pods that wait for their turn to start or stop. ``cloud_ips`` are the
    addresses that a cloud controller has set in the Node object; None: the agent sets them.
    """

    settings: KubeletSettings
    flags: NodeFlags
    outside: Outside
    options: NodeOptions
    recorder: KeptEvents
    signals: Signals
    started_at: float
    backlog: Backlog
    cloud_ips: NodeAddresses | None

    @property
    def host_ips(self) -> Sequence[str]:
        """What pods report as their host's addresses, and pods on its network as theirs.

        They may change in place.
        """
        return self.outside.machine.node_ips if self.cloud_ips is None else self.cloud_ips

    @property
    def root(self) -> Path:
        """The kubelet's root directory."""
        return Path(self.flags.root_dir)

    @property
    def gates(self) -> FeatureGates:
        """The feature gates."""
        return self.settings.feature_gates

    @property
    def node_name(self) -> str:
        """The name of the Node object."""
        return self.options.name

    def node_uid(self) -> str:
        """The uid of the Node object; empty: the API has not shown it yet."""
        return ((self.signals.newest_node() or {}).get("metadata") or {}).get("uid") or ""

    @property
    def kube_api(self) -> KubeApi | None:
        """The API client for pods and what they use; None: standalone."""
        return self.outside.api.pods if self.outside.api is not None else None
