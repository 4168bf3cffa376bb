"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler as processes of this machine.

All listen on loopback, but for the API server of a control plane that has another address.

Authorization is Node and RBAC, with NodeRestriction, as kubeadm configures it. Nothing outside of
the plane's directory is written.
"""

from __future__ import annotations

import json
import shutil
import ssl
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from kubeletpy.base.api.types import JSON
from tools.control_plane.audit import AuditLog
from tools.control_plane.certificates import SERVER_NAMES, Authority
from tools.env.debian import unpacked
from tools.env.ports import free_port
from tools.env.process import Daemon
from tools.env.waiting import wait_until

LOOPBACK = "127.0.0.1"
SERVICES = "10.96.0.0/16"
ADMIN = "kubernetes-admin"
"""The name of kubeadm's administrator, which recorded answers contain."""
READY_S = 240.0
"""Timeout for a program to become ready; the API server takes 5 s on a quiet machine."""


class ControlPlane:
    """A control plane in ``directory``.

    Attributes:
        url: of the API server; its port is kept over restarts.
        admin: a kubeconfig of group system:masters.
        audit: the requests of nodes.
    """

    def __init__(self, directory: Path, programs: Path, address: str = LOOPBACK) -> None:
        """``programs``: the directory of the built programs; ``address``: of the API server."""
        self.directory, self._programs = directory, programs.absolute()
        directory.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(directory / "pki")
        self.port, self._etcd_port, self._peer_port = free_port(), free_port(), free_port()
        self._address = address
        self.url = f"https://{address}:{self.port}"
        self.audit = AuditLog(directory)
        self.admin = self.authority.kubeconfig("admin", self.url, ADMIN, "system:masters")
        self.renew_server_certificate()
        self.authority.issue("kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
        self.etcd = Daemon("etcd", directory)
        self.api_server = Daemon("kube-apiserver", directory)
        self.controllers = Daemon("kube-controller-manager", directory)
        self.scheduler = Daemon("kube-scheduler", directory)

    def start(
        self, *, controllers: bool = True, flags: Sequence[str] = (), gates: str = ""
    ) -> None:
        """Start all of it, or etcd and the API server alone, and wait until it is ready.

        ``flags``: further ones of the API server; ``gates``: feature gates of all the programs
        ("NAME=true,OTHER=false").
        """
        switches = [f"--feature-gates={gates}"] if gates else []
        self.start_etcd()
        self.start_api_server([*switches, *flags])
        if controllers:
            self._start_controllers(switches)

    def start_without_history(self) -> None:
        """Start all of it so that versions from before now are too old, as in a used cluster."""
        self.start(controllers=False)
        self.compact()
        self.api_server.stop()
        self.start_api_server()
        self._start_controllers()

    def stop(self) -> None:
        """Stop what runs, in reverse order."""
        for each in (self.scheduler, self.controllers, self.api_server, self.etcd):
            each.stop()

    def remove(self) -> None:
        """Stop it and remove its data."""
        self.stop()
        shutil.rmtree(self.directory)

    def node_kubeconfig(self, name: str, url: str = "") -> Path:
        """The kubeconfig of a node with a new certificate for the Node authorizer.

        ``url``: another way to the API server than its own.
        """
        return self.authority.kubeconfig(
            f"node-{name}", url or self.url, f"system:node:{name}", "system:nodes"
        )

    def renew_server_certificate(self) -> None:
        """Issue the API server's certificate, for new connections."""
        self.authority.issue("server", "kube-apiserver", names=(*SERVER_NAMES, self._address))

    def server_certificate(self) -> bytes:
        """The certificate that the API server shows now (DER)."""
        address = self._address, self.port
        return ssl.PEM_cert_to_DER_cert(
            ssl.get_server_certificate(address, ca_certs=str(self.authority.ca))
        )

    def compact(self) -> None:
        """Remove all history from etcd: every watch that resumes from before now is too old."""
        # a range of one key that is not there: the answer's header has the revision
        header = self._etcd("range", {"key": "eA=="})["header"]
        self._etcd("compaction", {"revision": header["revision"], "physical": True})

    def _etcd(self, call: str, request: JSON) -> JSON:
        url = f"http://127.0.0.1:{self._etcd_port}/v3/kv/{call}"
        with urllib.request.urlopen(url, json.dumps(request).encode(), timeout=30) as answer:
            found: JSON = json.load(answer)
            return found

    def start_etcd(self) -> None:
        """Start etcd.

        It is that of Debian testing: bookworm's 3.4.23 has no RequestWatchProgress, so that an API
        server on it streams no lists.
        """
        url, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self.etcd.start(
            [
                unpacked("etcd-server", "testing") / "usr" / "bin" / "etcd",
                f"--data-dir={self.directory / 'etcd'}",
                f"--listen-client-urls={url}",
                f"--advertise-client-urls={url}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
            ]
        )
        self._wait(self.etcd, f"{url}/health")

    def upgrade(self, programs: Path) -> None:
        """Start the API server of another release in place of this one's."""
        self.api_server.stop()
        self._programs = programs.absolute()
        self.start_api_server()

    def start_api_server(self, flags: Sequence[str] = ()) -> None:
        """Start the API server; ``flags`` are further ones."""
        pki = self.authority.directory
        self.api_server.start(
            [
                self._programs / "kube-apiserver",
                f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
                f"--bind-address={self._address}",
                f"--secure-port={self.port}",
                "--endpoint-reconciler-type=none",
                f"--service-cluster-ip-range={SERVICES}",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                f"--client-ca-file={self.authority.ca}",
                f"--tls-cert-file={pki / 'server.crt'}",
                f"--tls-private-key-file={pki / 'server.key'}",
                "--kubelet-preferred-address-types=InternalIP",
                f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
                f"--kubelet-client-key={pki / 'kubelet-client.key'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={pki / 'sa.pub'}",
                f"--service-account-signing-key-file={pki / 'sa.key'}",
                "--allow-privileged=true",
                *self.audit.flags(),
                *flags,
            ]
        )
        self._wait(self.api_server, f"{self.url}/readyz")

    def _start_controllers(self, flags: Sequence[str] = ()) -> None:
        pki = self.authority.directory
        ports = free_port(), free_port()
        manager = self.authority.kubeconfig(
            "controller-manager", self.url, "system:kube-controller-manager"
        )
        scheduler = self.authority.kubeconfig("scheduler", self.url, "system:kube-scheduler")
        self.controllers.start(
            [
                self._programs / "kube-controller-manager",
                f"--kubeconfig={manager}",
                "--bind-address=127.0.0.1",
                f"--secure-port={ports[0]}",
                "--leader-elect=false",
                "--use-service-account-credentials=true",
                f"--root-ca-file={self.authority.ca}",
                f"--cluster-signing-cert-file={self.authority.ca}",
                f"--cluster-signing-key-file={pki / 'ca.key'}",
                f"--service-account-private-key-file={pki / 'sa.key'}",
                *flags,
            ]
        )
        self.scheduler.start(
            [
                self._programs / "kube-scheduler",
                f"--kubeconfig={scheduler}",
                "--bind-address=127.0.0.1",
                f"--secure-port={ports[1]}",
                "--leader-elect=false",
                *flags,
            ]
        )
        for daemon, port in zip((self.controllers, self.scheduler), ports, strict=True):
            self._wait(daemon, f"https://127.0.0.1:{port}/healthz", verify=False)

    def _wait(self, daemon: Daemon, url: str, *, verify: bool = True) -> None:
        pki = self.authority.directory
        tls = ssl.create_default_context(cafile=str(self.authority.ca))
        tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        if not verify:  # a certificate of its own, made at each start
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE

        def ready() -> bool:
            supplied = tls if url.startswith("https:") else None
            with urllib.request.urlopen(url, timeout=5, context=supplied) as answer:
                return bool(answer.status == 200)

        wait_until(ready, daemon.name, timeout=READY_S, interval=0.2, give_up=daemon.died)
