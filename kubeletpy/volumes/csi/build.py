"""Assembles the CSI part of a node. Must never start anything."""

from __future__ import annotations

import random
from pathlib import Path

from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.metrics.volumes import CsiMetrics
from kubeletpy.volumes.csi.credentials import Credentials
from kubeletpy.volumes.csi.csi_plugin import CsiPlugin
from kubeletpy.volumes.csi.driver_objects import DriverObjects
from kubeletpy.volumes.csi.drivers import CsiDrivers, OpenCalls, connect_by
from kubeletpy.volumes.csi.host import CsiHost
from kubeletpy.volumes.csi.names import CsiPaths
from kubeletpy.volumes.csi.node_writer import CsiNodeWriter
from kubeletpy.volumes.csi.registration import CsiDriverHandler
from kubeletpy.volumes.projected.tokens import PodTokens


class Csi:
    """The CSI components of a node.

    Attributes:
        plugin: the volume plugin.
        handler: for the plugin manager, of type CSIPlugin.
        objects: to be run: follows CSIDriver objects.
        writer: to be run: reports to the cluster; states what keeps the node from being ready.
    """

    def __init__(
        self,
        root: Path,
        node_name: str,
        kube_api: KubeApi | None,
        tokens: PodTokens,
        metrics: CsiMetrics,
        *,
        rng: random.Random | None = None,
        calls: OpenCalls | None = None,
    ) -> None:
        """Make it inside a running event loop.

        ``kube_api`` None: standalone. ``calls`` None: drivers are called over their sockets.
        """
        self.drivers = CsiDrivers(connect_by(metrics, calls))
        self.objects = DriverObjects(kube_api, rng=rng)
        self.writer = CsiNodeWriter(node_name, kube_api, rng=rng)
        self.handler = CsiDriverHandler(self.drivers, self.objects, self.writer)
        host = CsiHost(
            node_name,
            CsiPaths(str(root)),
            self.drivers,
            self.objects,
            Credentials(kube_api, tokens),
        )
        self.plugin = CsiPlugin(host, PatientThreads())

    async def close(self) -> None:
        """Close the connections to drivers; they stay registered for the next agent."""
        await self.handler.close()
        await self.drivers.close()
