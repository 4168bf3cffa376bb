"""The credentials that the agent would use: kubeconfig, certificates, and their rotation.

Reads files; must never show a key or a token.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from kubeletpy.agent.takeover.preflight.findings import Area, Finding, Severity
from kubeletpy.base.api.times import format_time
from kubeletpy.base.host.key_pair import KeyPair
from kubeletpy.base.host.pki import CertificateError
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.kubeapi.kubeconfig import KubeconfigError, read_kubeconfig
from kubeletpy.node.certificates.store import CertificateStore, certificate_dir

_finding = partial(Finding, Area.CREDENTIALS)


def check_credentials(settings: KubeletSettings, flags: NodeFlags, now: float) -> list[Finding]:
    """Findings on credentials, their expiry and their renewal. ``now``: Unix seconds. Blocking."""
    return [*_client(settings, flags, now), *_server(settings, flags, now)]


def _client(settings: KubeletSettings, flags: NodeFlags, now: float) -> Iterator[Finding]:
    if not flags.kubeconfig:
        then = "only static pods are run, and nothing is reported"
        yield _finding(Severity.NOTE, "--kubeconfig", "not set", then)
        return
    path = Path(flags.kubeconfig)
    try:
        context = read_kubeconfig(path)
    except KubeconfigError as error:
        severity, then = Severity.BLOCKS, "the agent does not start with it"
        if flags.bootstrap_kubeconfig:
            severity = Severity.NOTE
            then = "a client certificate is requested with the bootstrap kubeconfig"
        yield _finding(severity, str(path), str(error), then)
        return
    files = context.certificate_files()
    pair, then = None, "the agent renews it"
    if not settings.rotate_certificates:
        pair, then = files, "it is not renewed: rotateCertificates is off"
    store = CertificateStore(certificate_dir(flags), "kubelet-client", files)
    yield from _pair(store, pair, "client certificate", then, now)
    if files is None and context.inline_certificate() is None:
        yield _finding(Severity.NOTE, str(path), "no client certificate: a token or a program")


def _server(settings: KubeletSettings, flags: NodeFlags, now: float) -> Iterator[Finding]:
    if not settings.enable_server:
        return
    given = None
    if settings.tls_cert_file:
        given = KeyPair(Path(settings.tls_cert_file), Path(settings.tls_private_key_file))
    directory = certificate_dir(flags)
    if settings.server_tls_bootstrap:
        store = CertificateStore(directory, "kubelet-server", given)
        yield from _pair(store, None, "server certificate", "the agent renews it", now)
        return
    pair = given or KeyPair.named(directory, "kubelet")
    store = CertificateStore(directory, "kubelet-server", given)
    then = "it is not renewed by the agent" if given else "the agent replaces it in time"
    if given is None and not pair.certificate.exists():
        what = "no certificate of the node's own port"
        yield _finding(Severity.NOTE, str(pair.certificate), what, "the agent makes one")
        return
    yield from _pair(store, pair, "server certificate", then, now)


def _pair(
    store: CertificateStore, pair: KeyPair | None, what: str, then: str, now: float
) -> Iterator[Finding]:
    """``pair``: that of the configuration; None: that of the store."""
    from kubeletpy.node.certificates.store import load_pair  # brings the library for certificates

    try:
        stored = store.load() if pair is None else load_pair(pair)
    except (CertificateError, OSError) as error:
        subject = str(store.current_path if pair is None else pair.certificate)
        yield _finding(Severity.UNCLEAR, subject, f"{what}: {error}", "it can't be used")
        return
    if stored is None:
        return
    subject, end = str(stored.files.certificate), stored.certificate.not_after
    until = format_time(end)
    if end <= now:
        text = "the API server or the clients of the node refuse it"
        yield _finding(Severity.UNCLEAR, subject, f"{what}, expired at {until}", text)
        return
    yield _finding(Severity.TAKEN, subject, f"{what}, valid until {until}", then)
