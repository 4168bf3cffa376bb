"""Reads the state that the agent would take over from a kubelet, file by file. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kubeletpy.agent.takeover.preflight.findings import Area, Finding, Severity
from kubeletpy.agent.takeover.preflight.state_files import (
    DEVICES,
    INTENT,
    RECORD,
    Reader,
    counted,
    judge,
    readers,
)
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.node.shutdown import times_file
from kubeletpy.resources.plugins.sockets import find_sockets
from kubeletpy.runtime_manager.act.user_namespaces import (
    UnusableIds,
    UserNamespaceRanges,
    subordinate_ids,
)
from kubeletpy.volumes.csi.leftovers import find_csi_volumes
from kubeletpy.volumes.csi.names import CsiPaths

MAX_BYTES = 64 << 20
"""More than the state of any node; a bigger file is not read."""


def read_state(settings: KubeletSettings, flags: NodeFlags) -> list[Finding]:
    """Findings on the state files: contents, and unreadable ones. Blocking."""
    root = Path(flags.root_dir)
    if not root.is_dir():
        what = "the directory does not exist or can't be read"
        return [_unclear(root, what, "nothing can be taken over: check --root-dir")]
    findings = [*_pod_directories(root), *_user_namespaces(root / "pods", settings)]
    for name, reader in readers(settings).items():
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
        yield judge(str(path), _read(path), reader)
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
        yield Finding(Area.STATE, Severity.TAKEN, str(directory), counted(good, one, many))


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
            counted(len(names), "pod directory", "pod directories"),
        )
    try:
        volumes = find_csi_volumes(CsiPaths(str(root)))
    except OSError as error:
        yield _unclear(root / "plugins", f"CSI volumes can't be read: {error.strerror or error}")
        return
    count = len(volumes.published)
    if count:
        yield Finding(Area.STATE, Severity.TAKEN, str(pods), counted(count, "CSI volume"))
    damaged = {each.path: each.damaged for each in volumes.published}
    damaged |= {each.path: each.damaged for each in volumes.staged}
    for path, why in damaged.items():
        if why:
            what = f"vol_data.json of this volume: {why}"
            yield _unclear(Path(path), what, "the volume may not be torn down completely")


def _shutdown_times(root: Path) -> Iterator[Finding]:
    path = root / times_file.NAME
    if not path.exists():
        return
    try:
        times_file.read_times(root)
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
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise OSError(f"it is larger than {MAX_BYTES} bytes")
    return data.decode("utf-8", "surrogateescape")


def _unclear(path: Path, what: str, consequence: str = "") -> Finding:
    return Finding(Area.STATE, Severity.UNCLEAR, str(path), what, consequence)
