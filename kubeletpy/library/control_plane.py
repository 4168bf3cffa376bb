"""A real control plane for tests: etcd, kube-apiserver and what is there of the rest, as processes.

All listen on loopback, and end with the program that started them, however it ends. Nothing outside
of the plane's directory is written. Authorization is Node and RBAC, with NodeRestriction, as
kubeadm configures it. The programs come from a directory, such as setup-envtest fills: etcd and
kube-apiserver are needed, kube-controller-manager and kube-scheduler are started if they are there.
"""

from __future__ import annotations

import base64
import errno
import ipaddress
import json
import os
import platform
import secrets
import socket
import ssl
import subprocess
import textwrap
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from kubeletpy.base.host.files import KeyPair, write_private
from kubeletpy.base.host.pki import Names
from kubeletpy.base.structs import Struct
from kubeletpy.server.health import free_port

LOOPBACK = "127.0.0.1"
SERVICES = "10.96.0.0/16"
ADMIN = "kubernetes-admin"
"""The name of kubeadm's administrator."""
SERVER_NAMES = (
    *("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
    *(LOOPBACK, "10.96.0.1"),
)
READY_S = 240.0
"""Timeout for a program to become ready; the API server takes 5 s on a quiet machine."""
_CLUSTER = "kubeletpy"
_LOG_LINES = 15
_NEEDED = ("etcd", "kube-apiserver")
_ASSETS = ("KUBELETPY_ASSETS", "KUBEBUILDER_ASSETS")
_PLACES = ("/usr/local/kubebuilder/bin",)
_STORE = ".local/share/kubebuilder-envtest/k8s"


class ControlPlaneError(Exception):
    """A control plane can't be started; the text names the program, and what to do."""


class Programs(Struct, frozen=True):
    """The programs of a control plane. None: it runs without."""

    etcd: Path
    api_server: Path
    controller_manager: Path | None = None
    scheduler: Path | None = None


def programs_in(directory: Path) -> Programs | None:
    """The programs of a directory; None if etcd or kube-apiserver is not there."""
    etcd, server, manager, scheduler = (
        path if path.is_file() else None
        for path in (
            directory / name for name in (*_NEEDED, "kube-controller-manager", "kube-scheduler")
        )
    )
    return Programs(etcd, server, manager, scheduler) if etcd and server else None


def named_programs(name: str, directory: Path) -> Programs:
    """The programs of a directory that an option or variable names.

    Raises:
        ControlPlaneError: one that is needed is not there.
    """
    if (found := programs_in(directory)) is not None:
        return found
    lacking = " and ".join(each for each in _NEEDED if not (directory / each).is_file())
    raise ControlPlaneError(
        f"{name}: {directory} lacks {lacking} (`setup-envtest use -p path` downloads both, and "
        "prints their directory)"
    )


def find_programs(env: Mapping[str, str], home: Path) -> Programs | None:
    """The programs that the environment names, or those of the usual places; None: none are there.

    KUBELETPY_ASSETS and KUBEBUILDER_ASSETS name a directory. Otherwise that of kubebuilder counts,
    then the newest of setup-envtest.

    Raises:
        ControlPlaneError: a variable names a directory that lacks etcd or kube-apiserver.
    """
    for name in _ASSETS:
        if directory := env.get(name):
            return named_programs(name, Path(directory))
    newest = sorted((home / _STORE).glob("*-linux-*"), key=_release, reverse=True)
    return next(filter(None, map(programs_in, (*map(Path, _PLACES), *newest))), None)


def _release(directory: Path) -> tuple[int, ...]:
    """``1.37.2-linux-amd64`` as numbers."""
    numbers = directory.name.partition("-")[0].split(".")
    return tuple(int(each) if each.isdecimal() else 0 for each in numbers)


class Authority:
    """Signs certificates; every file is in ``directory``, with mode 0600."""

    def __init__(self, directory: Path) -> None:
        from kubeletpy.base.host import x509

        self.directory = directory
        self.pair = KeyPair.named(directory, "ca")
        self.ca = self.pair.certificate
        x509.make_authority(self.pair, "kubernetes-ca")
        account = x509.new_key()
        write_private(directory / "sa.key", account)
        write_private(directory / "sa.pub", _pem("PUBLIC KEY", x509.public_key(account)))

    def issue(
        self,
        file: str,
        user: str,
        group: str = "",
        names: Sequence[str] = (),
        *,
        both: bool = False,
    ) -> tuple[Path, Path]:
        """Make ``file.crt`` and ``file.key`` for a client, or a server with ``names``.

        ``both``: a server that is a client of its own kind, such as a member of etcd.
        """
        from kubeletpy.base.host import x509

        addresses = tuple(each for each in names if _is_address(each))
        others = tuple(each for each in names if each not in addresses)
        subject = Names(user, (group,) if group else (), others, addresses)
        pair = KeyPair.named(self.directory, file)
        x509.make_signed(pair, self.pair, subject, client_too=both)
        return pair.certificate, pair.key

    def kubeconfig(self, file: str, url: str, user: str, group: str = "") -> Path:
        """Issue a client certificate, and write a kubeconfig that uses it."""
        pair = KeyPair(*self.issue(file, user, group))
        path = self.directory / f"{file}.kubeconfig"
        write_kubeconfig(path, url, self.ca, user, pair)
        return path


def write_kubeconfig(path: Path, url: str, authority: Path, user: str, pair: KeyPair) -> None:
    """Write a kubeconfig of a server for a user with a client certificate. Raises OSError.

    Its certificates are inside, as kind and kubeadm have them, because programs read them there.
    """
    cluster = {"server": url, "certificate-authority-data": _inline(authority)}
    identity = {
        "client-certificate-data": _inline(pair.certificate),
        "client-key-data": _inline(pair.key),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _CLUSTER, "cluster": cluster}],
        "users": [{"name": user, "user": identity}],
        "contexts": [{"name": _CLUSTER, "context": {"cluster": _CLUSTER, "user": user}}],
        "current-context": _CLUSTER,
    }
    write_private(path, json.dumps(config))


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _pem(label: str, der: bytes) -> str:
    body = "\n".join(textwrap.wrap(base64.b64encode(der).decode(), 64))
    return f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n"


def _is_address(name: str) -> bool:
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


class Background(Protocol):
    """A program in the background, with its log."""

    name: str

    def start(self, argv: Sequence[str | Path]) -> None:
        """Start it."""

    def stop(self) -> None:
        """Stop it and wait for its end; nothing if it does not run."""

    def died(self) -> str | None:
        """Why waiting for it is pointless, with the end of its log; None while it runs."""


class Guard:
    """Ends the processes of this program and removes a directory when the program is killed.

    A shell waits for the end of its standard input, which is open as long as this program lives,
    or another one that listens at a socket. It finds processes by a variable of their environment,
    so that their own children end, too.

    Attributes:
        environment: for each process that is to end.
    """

    def __init__(self, directory: Path, lifeline: str = "") -> None:
        """Nothing happens before :meth:`start`.

        Args:
            directory: the one that is removed.
            lifeline: the abstract name of another program's socket. All ends with that program, or
                when it accepts the connection and sends ``stopped``, which keeps the directory.
        """
        self.environment = {"KUBELETPY_CLUSTER": secrets.token_hex(8)}
        self._directory, self._lifeline = directory, lifeline
        self._shell: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin. Raises OSError: there is no shell, or the other program has ended."""
        ((name, value),) = self.environment.items()
        arguments = (f"{name}={value}", os.path.realpath(self._directory))
        with socket.socket(socket.AF_UNIX) as connection:
            if self._lifeline:
                connection.connect(f"\0{self._lifeline}")
            self._shell = subprocess.Popen(
                ("sh", "-c", _GUARD, "kubeletpy-guard", *arguments),
                stdin=connection.fileno() if self._lifeline else subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,  # signals of a terminal are for the program
            )

    def stop(self) -> None:
        """End all processes, and keep the directory."""
        if self._shell is not None:
            self._shell.communicate(b"stopped\n")
            self._shell = None


END_ALL = r"""
while found=$(grep -lszxF "$1" /proc/[0-9]*/environ); [ "$found" ]; do
    for each in $found; do each=${each#/proc/}; kill -KILL "${each%/environ}"; done
done
"""
"""Kills the processes that have the first argument in their environment, in shell."""
_GUARD = f"""
trap '' INT TERM HUP
read -r stopped
{END_ALL}
[ "$stopped" ] || grep -qF " $2/" /proc/self/mounts || rm -rf "$2"
"""
"""Its arguments are the variable and the directory, which stays if something is mounted there."""


class Child:
    """A program whose :class:`Guard` ends it with this one."""

    def __init__(
        self, name: str, directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, argv: Sequence[str | Path]) -> None:
        """Start it; what it writes is appended to its log.

        Raises:
            ControlPlaneError: the program can't be run.
        """
        try:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    tuple(map(str, argv)),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env=os.environ | self._environment,
                    start_new_session=True,  # Ctrl-C is for this program, which then ends it
                )
        except OSError as error:
            why = f"{argv[0]} can't be run: {error.strerror}"
            if error.errno == errno.ENOEXEC:
                why += f" (this machine is {platform.machine()})"
            raise ControlPlaneError(why) from error

    def stop(self) -> None:
        """End it by SIGKILL: it has nothing to keep, and an API server ends slowly otherwise."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def died(self) -> str | None:
        """Why it does not run, with the end of its log; None while it runs."""
        code = self._process.poll() if self._process is not None else 0
        if code is None:
            return None
        try:
            lines = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            log = f"the end of {self.log}:" if lines else f"{self.log} is empty"
        except FileNotFoundError:  # its guard has removed the directory
            lines, log = [], f"{self.log} was removed"
        return "\n".join((f"{self.name} has ended with exit code {code}; {log}", *lines))


class ControlPlane:
    """A control plane in ``directory``.

    Attributes:
        url: of the API server; its port is kept over restarts.
        admin: a kubeconfig of group system:masters.
        authority: signs all certificates.
    """

    def __init__(
        self,
        directory: Path,
        programs: Programs,
        address: str = LOOPBACK,
        background: Callable[[str, Path], Background] = Child,
        abandoned: threading.Event | None = None,
    ) -> None:
        """Write the certificates and kubeconfigs.

        Args:
            address: of the API server.
            abandoned: set by another thread; a start that waits then ends with an error.
        """
        self.directory, self.programs = directory, programs
        directory.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(directory / "pki")
        self.port, self.etcd_port, self.peer_port = (free_port(LOOPBACK) for _ in range(3))
        self.address = address
        self.url = f"https://{address}:{self.port}"
        self.etcd_url = f"http://{LOOPBACK}:{self.etcd_port}"
        self.admin = self.authority.kubeconfig("admin", self.url, ADMIN, "system:masters")
        self.renew_server_certificate()
        self.authority.issue("kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
        self.etcd = background("etcd", directory)
        self.api_server = background("kube-apiserver", directory)
        self.controllers = background("kube-controller-manager", directory)
        self.scheduler = background("kube-scheduler", directory)
        self._abandoned = abandoned or threading.Event()

    def start(
        self, *, controllers: bool = True, flags: Sequence[str] = (), gates: str = ""
    ) -> None:
        """Start all of it, or etcd and the API server alone, and wait until it is ready.

        Args:
            flags: further ones of the API server.
            gates: feature gates of all the programs ("NAME=true,OTHER=false").

        Raises:
            ControlPlaneError: a program can't be run, has ended, or is not ready in time.
        """
        switches = [f"--feature-gates={gates}"] if gates else []
        self.start_etcd()
        self.start_api_server([*switches, *flags])
        if controllers:
            self.start_controllers(switches)

    def stop(self) -> None:
        """Stop what runs, in reverse order."""
        for each in (self.scheduler, self.controllers, self.api_server, self.etcd):
            each.stop()

    def node_kubeconfig(self, name: str, url: str = "") -> Path:
        """The kubeconfig of a node with a new certificate for the Node authorizer.

        ``url``: another way to the API server than its own.
        """
        return self.authority.kubeconfig(
            f"node-{name}", url or self.url, f"system:node:{name}", "system:nodes"
        )

    def renew_server_certificate(self) -> None:
        """Issue the API server's certificate, for new connections."""
        self.authority.issue("server", "kube-apiserver", names=(*SERVER_NAMES, self.address))

    def start_etcd(self) -> None:
        """Start etcd. One before 3.5 has no RequestWatchProgress: lists are then not streamed."""
        url, peer = self.etcd_url, f"http://{LOOPBACK}:{self.peer_port}"
        self.etcd.start(
            [
                self.programs.etcd,
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

    def start_api_server(self, flags: Sequence[str] = ()) -> None:
        """Start the API server; ``flags`` are further ones."""
        pki = self.authority.directory
        self.api_server.start(
            [
                self.programs.api_server,
                f"--etcd-servers={self.etcd_url}",
                f"--bind-address={self.address}",
                f"--advertise-address={self.address}",  # otherwise there must be a default route
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
                *flags,
            ]
        )
        self._wait(self.api_server, f"{self.url}/readyz")

    def start_controllers(self, flags: Sequence[str] = ()) -> None:
        """Start the controller manager and the scheduler, as far as they are there."""
        pki, ports = self.authority.directory, (free_port(LOOPBACK), free_port(LOOPBACK))
        common = (f"--bind-address={LOOPBACK}", "--leader-elect=false", *flags)
        manager, scheduler = self.programs.controller_manager, self.programs.scheduler
        if manager is not None:
            user = "system:kube-controller-manager"
            config = self.authority.kubeconfig("controller-manager", self.url, user)
            self.controllers.start(
                [
                    manager,
                    f"--kubeconfig={config}",
                    f"--secure-port={ports[0]}",
                    "--use-service-account-credentials=true",
                    f"--root-ca-file={self.authority.ca}",
                    f"--cluster-signing-cert-file={self.authority.ca}",
                    f"--cluster-signing-key-file={pki / 'ca.key'}",
                    f"--service-account-private-key-file={pki / 'sa.key'}",
                    *common,
                ]
            )
        if scheduler is not None:
            config = self.authority.kubeconfig("scheduler", self.url, "system:kube-scheduler")
            port = f"--secure-port={ports[1]}"
            self.scheduler.start([scheduler, f"--kubeconfig={config}", port, *common])
        started = ((manager, self.controllers), (scheduler, self.scheduler))
        for (program, background), port_ in zip(started, ports, strict=True):
            if program is not None:
                self._wait(background, f"https://{LOOPBACK}:{port_}/healthz", verify=False)

    def _wait(self, program: Background, url: str, *, verify: bool = True) -> None:
        pki = self.authority.directory
        tls = ssl.create_default_context(cafile=str(self.authority.ca))
        tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        if not verify:  # a certificate of its own, made at each start
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        deadline, why = time.monotonic() + READY_S, ""
        while time.monotonic() < deadline:
            try:
                context = tls if url.startswith("https:") else None
                with urllib.request.urlopen(url, timeout=5, context=context):
                    return
            except OSError as error:
                why = str(error)
            if (ended := program.died()) is not None:
                raise ControlPlaneError(ended)
            if self._abandoned.wait(0.05):
                raise ControlPlaneError(f"{program.name} is no longer waited for")
        raise ControlPlaneError(f"{program.name} is not ready within {READY_S:g} s: {why}")


def consequences(programs: Programs) -> Iterator[str]:
    """Consequences of missing programs, as sentences."""
    if programs.controller_manager is None:
        yield (
            "There is no kube-controller-manager: Deployments, Jobs and other workloads make no "
            "pods, namespaces have no service account, and deleted namespaces stay Terminating."
        )
    if programs.scheduler is None:
        yield "There is no kube-scheduler: the fixture binds each pod to a node in turn."
