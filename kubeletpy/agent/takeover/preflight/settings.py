"""Loads a kubelet's settings, state and credentials as the agent would, and reports problems.

Changes nothing, and never shows a key or a token.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from kubeletpy.agent.takeover.preflight import state_files
from kubeletpy.agent.takeover.preflight.checks import other_effects
from kubeletpy.agent.takeover.preflight.findings import Area, Finding, KubeletFound, Severity
from kubeletpy.agent.takeover.preflight.state_files import DEVICES, INTENT, RECORD, Reader
from kubeletpy.base.api.times import format_time
from kubeletpy.base.host import state_file
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import CertificateError
from kubeletpy.base.kubernetes_version import KubernetesVersion
from kubeletpy.base.structs import Struct, replace
from kubeletpy.base.wire.api_table import pod_list
from kubeletpy.config import (
    ConfigError,
    FlagValues,
    KubeletSettings,
    LoadedConfig,
    NodeFlags,
    load_files,
    parse_flags,
)
from kubeletpy.config.effects import lines
from kubeletpy.config.load import Check
from kubeletpy.kubeapi.kubeconfig import KubeconfigError, read_kubeconfig
from kubeletpy.node.certificates.store import CertificateStore, certificate_dir
from kubeletpy.node.shutdown import record
from kubeletpy.resources.plugins.plugin_manager import find_sockets
from kubeletpy.runtime_manager.act.user_namespaces import (
    UnusableIds,
    UserNamespaceRanges,
    subordinate_ids,
)
from kubeletpy.volumes.csi.files import find_csi_volumes
from kubeletpy.volumes.csi.objects import CsiPaths

_PATHS = (
    "bootstrap_kubeconfig",
    "cert_dir",
    "config",
    "config_dir",
    "image_credential_provider_bin_dir",
    "image_credential_provider_config",
    "kubeconfig",
    "lock_file",
    "root_dir",
)
"""Flags that hold a path, which may be relative to the kubelet's working directory."""


class LoadedSettings(Struct, frozen=True):
    """The settings, None if the agent would not start with them, and what was found."""

    config: LoadedConfig | None
    findings: tuple[Finding, ...]


def read_flags(kubelet: KubeletFound) -> tuple[FlagValues | None, tuple[Finding, ...]]:
    """The flags of a kubelet with absolute paths; None if the agent would refuse them."""
    try:
        return _absolute(parse_flags(kubelet.arguments), kubelet.directory), ()
    except ConfigError as error:
        return None, tuple(_problems(error))


def load_settings(
    flags: FlagValues, check: Check | None = None, version: KubernetesVersion | None = None
) -> LoadedSettings:
    """The settings of a kubelet, as ``kubeletpy run`` with its flags would have them.

    ``check`` and ``version`` are as for :func:`kubeletpy.config.files.load_files`.
    """
    try:
        config = load_files(flags, check, version)
    except ConfigError as error:
        return LoadedSettings(None, tuple(_problems(error)))
    return LoadedSettings(config, tuple(_findings(config)))


def _problems(error: ConfigError) -> list[Finding]:
    found = []
    for each in error.problems:
        subject = f"{each.source}: {each.field}" if each.source != each.field else each.field
        subject = subject.removeprefix(": ")
        what = f"{each.value}: {each.allowed}" if each.value else each.allowed
        then = "the agent does not start with it"
        found.append(Finding(Area.SETTINGS, Severity.BLOCKS, subject, what, then))
    return found + [Finding(Area.SETTINGS, Severity.NOTE, str(each), "") for each in error.warnings]


def _findings(config: LoadedConfig) -> list[Finding]:
    without_effect = set(lines(config.notices))
    notes = [
        Finding(Area.SETTINGS, Severity.NOTE, text, "")
        for text in config.warnings
        if text not in without_effect
    ]
    differing = [
        Finding(Area.SETTINGS, Severity.DIFFERS, each.name, each.value, each.consequence)
        for each in (*config.notices, *other_effects(config.settings, config.node))
    ]
    return [*differing, *notes]


def _absolute(flags: FlagValues, directory: str) -> FlagValues:
    """The flags with relative paths resolved against the kubelet's working directory."""
    node = flags.node
    changed: dict[str, Any] = {
        name: str(PurePosixPath(directory, value))
        for name in _PATHS
        if (value := getattr(node, name)) and not value.startswith("/")
    }
    return replace(flags, node=replace(node, **changed)) if changed else flags


# State, file by file.


def read_state(settings: KubeletSettings, flags: NodeFlags) -> list[Finding]:
    """Findings on the state files: contents, and unreadable ones. Blocking."""
    root = Path(flags.root_dir)
    if not root.is_dir():
        what = "the directory does not exist or can't be read"
        return [_unclear(root, what, "nothing can be taken over: check --root-dir")]
    findings = [*_pod_directories(root), *_user_namespaces(root / "pods", settings)]
    for name, reader in state_files.readers(settings, pod_list).items():
        findings += _one(root / name, reader)
    findings += _one(Path(flags.device_plugins_dir) / "kubelet_internal_checkpoint", DEVICES)
    findings += _shutdown_times(root)
    findings += _many(
        root / "image_manager" / "pulling", INTENT, "pull in progress", "pulls in progress"
    )
    findings += _many(root / "image_manager" / "pulled", RECORD, "image pull record")
    findings += _sockets(root / "plugins_registry")
    return findings


def _one(path: Path, reader: Reader) -> Iterator[Finding]:
    try:
        yield state_files.judge(str(path), _read(path), reader)
    except FileNotFoundError:
        return
    except OSError as error:
        what = f"it can't be read: {error.strerror or error}"
        yield Finding(Area.STATE, reader.damaged, str(path), what, reader.consequence)


def _many(directory: Path, reader: Reader, one: str, many: str = "") -> Iterator[Finding]:
    """One finding for all readable files of a directory, and one for each that is not."""
    paths = [each for each in _listed(directory) if each.name.startswith("sha256-")]
    good = 0
    for path in paths:
        for each in _one(path, reader):
            if each.severity is Severity.TAKEN:
                good += 1
            else:
                yield each
    if good:
        yield Finding(
            Area.STATE, Severity.TAKEN, str(directory), state_files.counted(good, one, many)
        )


def _user_namespaces(pods: Path, settings: KubeletSettings) -> Iterator[Finding]:
    try:
        records = UserNamespaceRanges(
            pods,
            supporting=lambda: (),
            max_pods=settings.max_pods,
            ids_per_pod=settings.user_namespaces.ids_per_pod,
            owned=subordinate_ids(),
        )
    except UnusableIds as error:
        then = "the agent does not start with these ids for pods"
        yield Finding(Area.STATE, Severity.BLOCKS, error.source, str(error), then)
        return
    for uid in sorted(records.unknown):
        what = "the record of its user namespace can't be used"
        yield _unclear(pods / uid / "userns", what, "the agent reads it from the runtime")


def _pod_directories(root: Path) -> Iterator[Finding]:
    pods = root / "pods"
    names = [each.name for each in _listed(pods)]
    if names:
        yield Finding(
            Area.STATE,
            Severity.TAKEN,
            str(pods),
            state_files.counted(len(names), "pod directory", "pod directories"),
        )
    try:
        volumes = find_csi_volumes(CsiPaths(str(root)))
    except OSError as error:
        yield _unclear(root / "plugins", f"CSI volumes can't be read: {error.strerror or error}")
        return
    count = len(volumes.published)
    if count:
        yield Finding(
            Area.STATE, Severity.TAKEN, str(pods), state_files.counted(count, "CSI volume")
        )
    damaged = {each.path: each.damaged for each in volumes.published}
    damaged |= {each.path: each.damaged for each in volumes.staged}
    for path, why in damaged.items():
        if why:
            what = f"vol_data.json of this volume: {why}"
            yield _unclear(Path(path), what, "the volume may not be torn down completely")


def _shutdown_times(root: Path) -> Iterator[Finding]:
    path = root / record.NAME
    if not path.exists():
        return
    try:
        record.read_record(root)
    except (OSError, ValueError) as error:
        yield _unclear(path, str(error), "the metrics of the last shutdown are missing")
        return
    yield Finding(Area.STATE, Severity.TAKEN, str(path), "times of the last shutdown")


def _sockets(directory: Path) -> Iterator[Finding]:
    try:
        sockets = find_sockets(str(directory)).sockets
    except FileNotFoundError:
        return
    except OSError as error:
        yield _unclear(directory, f"it can't be read: {error.strerror or error}")
        return
    if sockets:
        names = ", ".join(sorted(Path(each).name for each in sockets))
        then = "the agent registers these plugins again"
        yield Finding(Area.STATE, Severity.TAKEN, str(directory), names, then)


def _listed(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _read(path: Path) -> str:
    try:
        return state_file.read_state(path).decode("utf-8", "surrogateescape")
    except ValueError as error:
        raise OSError(str(error)) from error


def _unclear(path: Path, what: str, consequence: str = "") -> Finding:
    return Finding(Area.STATE, Severity.UNCLEAR, str(path), what, consequence)


# Credentials: kubeconfig, certificates, and their rotation.

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
    supplied = None
    if settings.tls_cert_file:
        supplied = KeyPair(Path(settings.tls_cert_file), Path(settings.tls_private_key_file))
    directory = certificate_dir(flags)
    if settings.server_tls_bootstrap:
        store = CertificateStore(directory, "kubelet-server", supplied)
        yield from _pair(store, None, "server certificate", "the agent renews it", now)
        return
    pair = supplied or KeyPair.named(directory, "kubelet")
    store = CertificateStore(directory, "kubelet-server", supplied)
    then = "it is not renewed by the agent" if supplied else "the agent replaces it in time"
    if supplied is None and not pair.certificate.exists():
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
