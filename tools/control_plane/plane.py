"""The control plane of tests and benchmarks: the package's own, with an audit log and histories.

Its programs are built by :mod:`tools.control_plane.building`, etcd is that of Debian testing:
bookworm's 3.4.23 has no RequestWatchProgress, so that an API server on it streams no lists. They
outlive the program that has started them, until it stops them.
"""

from __future__ import annotations

import json
import shutil
import ssl
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from kubeletpy.base.api.types import JSON
from kubeletpy.library import control_plane
from kubeletpy.library.control_plane import LOOPBACK, READY_S, SERVICES, Programs
from tools.control_plane.audit import AuditLog
from tools.env.debian import unpacked
from tools.env.process import Daemon

__all__ = ["LOOPBACK", "READY_S", "SERVICES", "ControlPlane"]


class ControlPlane(control_plane.ControlPlane):
    """A control plane in ``directory``.

    Attributes:
        audit: the requests of nodes.
    """

    etcd: Daemon
    api_server: Daemon
    controllers: Daemon
    scheduler: Daemon

    def __init__(self, directory: Path, programs: Path, address: str = LOOPBACK) -> None:
        """``programs``: the directory of the built programs; ``address``: of the API server."""
        super().__init__(directory, programs_of(programs), address, Daemon)
        self.audit = AuditLog(directory)

    def start_without_history(self) -> None:
        """Start all of it so that versions from before now are too old, as in a used cluster."""
        self.start(controllers=False)
        self.compact()
        self.api_server.stop()
        self.start_api_server()
        self.start_controllers()

    def remove(self) -> None:
        """Stop it and remove its data."""
        self.stop()
        shutil.rmtree(self.directory)

    def server_certificate(self) -> bytes:
        """The certificate that the API server shows now (DER)."""
        return ssl.PEM_cert_to_DER_cert(
            ssl.get_server_certificate((self.address, self.port), ca_certs=str(self.authority.ca))
        )

    def compact(self) -> None:
        """Remove all history from etcd: every watch that resumes from before now is too old."""
        # a range of one key that is not there: the answer's header has the revision
        header = self._etcd("range", {"key": "eA=="})["header"]
        self._etcd("compaction", {"revision": header["revision"], "physical": True})

    def _etcd(self, call: str, request: JSON) -> JSON:
        url = f"{self.etcd_url}/v3/kv/{call}"
        with urllib.request.urlopen(url, json.dumps(request).encode(), timeout=30) as answer:
            found: JSON = json.load(answer)
            return found

    def upgrade(self, programs: Path) -> None:
        """Start the API server of another release in place of this one's."""
        self.api_server.stop()
        self.programs = programs_of(programs)
        self.start_api_server()

    def start_api_server(self, flags: Sequence[str] = ()) -> None:
        """Start the API server with its audit log; ``flags`` are further ones."""
        super().start_api_server([*self.audit.flags(), *flags])


def programs_of(directory: Path) -> Programs:
    """The programs in a directory, with Debian's etcd."""
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    etcd = unpacked("etcd-server", "testing") / "usr" / "bin" / "etcd"
    return Programs(etcd, *(directory.absolute() / name for name in names))
