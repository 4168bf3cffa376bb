"""Whether every pod has reached the state it must reach when nobody touches it any more."""

from __future__ import annotations

from collections.abc import Iterator

from bench.manifests import NAMESPACE
from bench.soak.pods import ANY, ENDS, READY, SHARED
from bench.stand import NODE, Stand
from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.protocol import CONFIGMAPS
from kubeletpy.pods.pod import CONFIG_MIRROR


async def unsettled(stand: Stand) -> list[str]:
    """Deviations from the state that pods must reach, as human-readable lines."""
    config = await stand.api.get(CONFIGMAPS, SHARED, NAMESPACE)
    pods = dict(stand.pods.latest)
    found = [line for pod in pods.values() for line in _wrong(pod)]
    found += _static(stand, pods)
    return found + list(_configs(stand, pods, config["data"]["a"]))


def _wrong(pod: JSON) -> Iterator[str]:
    meta, status = pod["metadata"], pod.get("status") or {}
    if meta.get("deletionTimestamp"):
        yield f"pod {meta['name']} is still Terminating"
        return
    desired = meta["annotations"].get(ENDS)
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    ready = conditions.get("Ready", {}).get("status") == "True"
    if desired != ANY and not (ready if desired == READY else status.get("phase") == desired):
        yield f"pod {meta['name']} is not {desired}: {_short(status)}"
    for kind in ("PodResizePending", "PodResizeInProgress"):
        if kind in conditions:
            yield f"pod {meta['name']} has {kind}: {conditions[kind]}"


def _short(status: JSON) -> str:
    states = {
        entry["name"]: entry.get("state")
        for key in ("initContainerStatuses", "containerStatuses")
        for entry in status.get(key) or ()
    }
    return f"{status.get('phase')} {status.get('reason', '')} {states}"


def _static(stand: Stand, pods: dict[str, JSON]) -> list[str]:
    """Manifests and mirror pods must match."""
    files = {f"{file.stem}-{NODE}" for file in (stand.directory / "manifests").glob("*.json")}
    mirrors = {n for n, p in pods.items() if CONFIG_MIRROR in p["metadata"].get("annotations", {})}
    return [f"only one of manifest and mirror pod: {name}" for name in sorted(files ^ mirrors)]


def _configs(stand: Stand, pods: dict[str, JSON], desired: str) -> Iterator[str]:
    """Yield containers whose files differ from the configMap."""
    for name, pod in pods.items():
        uid = pod["metadata"]["uid"]
        folder = stand.root_dir / "pods" / uid / "volumes/kubernetes.io~configmap/config"
        if folder.is_dir() and (text := (folder / "a").read_text()) != desired:
            yield f"pod {name} reads {text} of the configMap, not {desired}"
