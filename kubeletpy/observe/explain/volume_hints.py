"""Hints for volumes that are not available: one line for each kind of cause. Pure."""

from __future__ import annotations

import re

from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.texts import one_line
from kubeletpy.volumes.claims.model import VolumeWait, WaitCause

SEE_MESSAGE = "see the message, and the agent's log on this node"
"""For volumes that the agent makes itself: no claim or driver has a part in them."""
_OTHERWISE = "see the object or driver that is named: kubectl get pvc,pv,volumeattachment"
_QUOTED = re.compile(r'"([^"]{1,512})"')
_HOST_PATH = re.compile(r"hostPath(?: type check failed:)? (/[^\s:]{0,4096})")
_NFS = re.compile(r"mount\.nfs of (\S{1,512}):(/\S{0,4096})")
_DRIVER = re.compile(r"\bof driver (\S{1,255})")
_OF_CAUSES: dict[WaitCause, str] = {
    WaitCause.UNREAD: "see whether the API server can be reached from this node; kubeletpy explain "
    "--node names all watches that fail",
    WaitCause.CLAIM_MISSING: "create {object} in namespace {namespace}",
    WaitCause.CLAIM_DELETING: "{object} is being deleted: use another claim in a new pod",
    WaitCause.CLAIM_UNBOUND: "see why it is not bound: kubectl describe pvc -n {namespace} {claim}",
    WaitCause.CLAIM_LOST: "its PersistentVolume was deleted: use another claim in a new pod",
    WaitCause.NOT_OWNED: "delete the claim of that name, or rename the pod: its owner is another",
    WaitCause.PV_MISSING: "see why {object} was removed: kubectl get pv",
    WaitCause.PV_OF_ANOTHER: "{object} is bound to another claim: use a claim that is bound to it",
    WaitCause.MODE_DIFFERS: "use the volume as its volumeMode requires: Block in volumeDevices, "
    "Filesystem in volumeMounts",
    WaitCause.NO_PLUGIN: "use a volume of a CSI driver: this node does not support this kind",
    WaitCause.INVALID: "correct what the message names in the volume of the pod or in the "
    "PersistentVolume",
    WaitCause.SELINUX_CONFLICT: "give both pods the same SELinux options, or another volume",
    WaitCause.DRIVER_MISSING: "install the node plugin of CSI driver {name}: it must run on this "
    "node and be registered with it (a CSIDriver object alone is not enough)",
    WaitCause.NODE_AFFINITY: "use a node that the nodeAffinity of {object} names: "
    "kubectl describe pv",
    WaitCause.NOT_IN_USE_YET: "nothing: it is mounted once the API shows the node's status",
    WaitCause.NOT_ATTACHED: "see why it is not attached: kubectl describe volumeattachment, and "
    "the log of the controller of {driver}",
    WaitCause.ATTACH_FAILED: "see the log of the driver's controller (external-attacher)",
    WaitCause.ATTACH_LIMIT: "use another node, or end pods of this node that use volumes of the "
    "driver",
    WaitCause.SOLE_USER: "end the pod that uses the volume: its access mode is ReadWriteOncePod",
}


def volume_hint(facts: PodFacts, name: str) -> str:
    """One line for the volume of that name in the pod's spec; "" stands for the failed step."""
    wait = next((each for each in facts.volumes if each.volume == name), None)
    if wait is None:
        text = "" if facts.outcome is None else facts.outcome.error
        return one_line(_of_text(text, facts) or SEE_MESSAGE)
    of_cause = _OF_CAUSES.get(wait.wait.cause, "").format(**_names(facts, wait))
    of_text = _of_text(f"{wait.wait.call} {wait.wait.message}", facts)
    return one_line(of_cause or of_text or _OTHERWISE)


def _names(facts: PodFacts, wait: VolumeWait) -> dict[str, str]:
    quoted = _QUOTED.search(wait.wait.object)
    name = quoted[1] if quoted is not None else wait.volume
    driver = _DRIVER.search(wait.wait.call)
    return {
        "object": wait.wait.object,
        "namespace": facts.namespace,
        "name": name,
        "claim": name.rpartition("/")[2],
        "driver": f"CSI driver {driver[1]}" if driver is not None else "the driver",
    }


def _of_text(text: str, facts: PodFacts) -> str:
    """A hint for the object that the message names; empty when it names no known object."""
    if "clustertrustbundle" in text.lower():
        if "feature gate" in text:
            return "enable the feature gate ClusterTrustBundleProjection on this node"
        return (
            "create the ClusterTrustBundle, which belongs to no namespace, or mark the source "
            "optional"
        )
    if (path := _HOST_PATH.search(text)) is not None:
        return f"create {path[1]} on this node as the hostPath's type requires, or change the type"
    if (export := _NFS.search(text)) is not None:
        server, exported = export[1], export[2]
        return (
            f"check that NFS server {server} exports {exported} to this node and can be reached "
            f"from it: showmount -e {server}"
        )
    if (driver := _DRIVER.search(text)) is not None:
        return f"see the log of the node plugin of CSI driver {driver[1]} on this node"
    return ""
