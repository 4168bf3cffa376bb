"""The next step for claims of devices, resizes, env files and refusals."""

from __future__ import annotations

import pytest

from kubeletpy.base.host.errors import Cause, CauseKind, FaultKind, MachineFault
from kubeletpy.base.structs import replace
from kubeletpy.metrics.trace.model import Step
from kubeletpy.observe.explain.advice import advice
from kubeletpy.observe.explain.gather import explain
from kubeletpy.observe.explain.hints import SEE_MESSAGE
from kubeletpy.observe.explain.model import Wait, WaitKind
from kubeletpy.pods.runtime_status import Decision, StartError
from kubeletpy.podworkers.history import HistoryEntry, LastSync
from kubeletpy.podworkers.records import Stage, SyncOutcome
from tests.kit.observe import NOW, facts, failed, not_ready, waiting
from tests.kit.pods import make_pod

KIND = CauseKind


@pytest.mark.parametrize(
    ("cause", "found"),
    [
        (Cause(KIND.VOLUME_SECRET, "key", "infra"), "create secret key in namespace infra"),
        (
            Cause(KIND.TRUST_BUNDLE),
            "create the ClusterTrustBundle, which belongs to no namespace, or mark the source "
            "optional",
        ),
        (
            Cause(KIND.HOST_PATH, "/srv/x{y}"),
            "create /srv/x{y} on this node as the hostPath's type requires, or change the type",
        ),
        (None, SEE_MESSAGE),
    ],
)
def test_the_next_step_depends_on_the_cause_alone(cause: Cause | None, found: str) -> None:
    """Whatever the message is."""
    waits = not_ready(waiting("ContainerCreating"))
    last = failed(Step.VOLUMES, "any text", cause=cause)
    assert explain(facts(status=waits, last_sync=last)).hint == found


@pytest.mark.parametrize(("cause", "found"), [(None, "create a new pod once that is fixed")])
def test_the_next_step_of_a_refusal(cause: Cause | None, found: str) -> None:
    """An agent that has restarted has only the text of the refusal, and gives a general step."""
    status = not_ready(phase="Failed", reason="UnexpectedAdmissionError", message="any text")
    refusal = HistoryEntry(NOW - 9, Decision("refuse the pod", "any text", cause=cause))
    assert explain(facts(status=status, history=(refusal,))).hint == found


def test_no_wait_has_no_advice() -> None:
    assert advice(facts(), None) == ""


def test_a_resize_in_progress_needs_no_advice() -> None:
    assert advice(facts(), Wait(WaitKind.RESIZE, "in progress", "")) == ""


@pytest.mark.parametrize(
    ("entry", "statuses", "named"),
    [
        ({"name": "gpu", "resourceClaimName": "mine"}, [], "mine"),
        (
            {"name": "gpu", "resourceClaimTemplateName": "t"},
            [{"name": "gpu", "resourceClaimName": "web-gpu-x"}],
            "web-gpu-x",
        ),
        ({"name": "gpu", "resourceClaimTemplateName": "t"}, [], "gpu"),
    ],
)
def test_a_failed_claim_is_named(
    entry: dict[str, str], statuses: list[dict[str, str]], named: str
) -> None:
    pod = make_pod(containers=[{"name": "main", "image": "i"}], resourceClaims=[entry])
    status = not_ready(waiting("ContainerCreating"), resourceClaimStatuses=statuses)
    found = explain(facts(pod, status=status, last_sync=failed(Step.CLAIMS, "no driver")))
    assert found.verdict == f"not running: resource claim {named}: no driver; next try in 42s"


DISK = MachineFault(FaultKind.SPACE, "/k/pods/u/x", "/k", 64 << 20, 100, 1000, 5)


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (
            DISK,
            "free space on file system /k of this node (100% of 64.0 MiB and 5% of 1000 inodes are "
            "used): du -xh --max-depth=2 /k | sort -h | tail",
        ),
        (
            replace(DISK, used_percent=40, inodes=0, size=5 << 30),
            "free space on file system /k of this node (40% of 5.0 GiB are used); if it has "
            "enough, a quota of the directory, or fs.inotify.max_user_watches (sysctl), is used up",
        ),
        (
            replace(DISK, kind=FaultKind.INODES, used_percent=3, used_inodes_percent=100),
            "remove files from file system /k of this node (3% of 64.0 MiB and 100% of 1000 inodes "
            "are used): du -x --inodes --max-depth=2 /k | sort -n | tail",
        ),
        (
            replace(DISK, kind=FaultKind.QUOTA),
            "raise the quota of /k/pods/u/x, or remove files that count for it",
        ),
        (
            replace(DISK, kind=FaultKind.READ_ONLY),
            "see why file system /k of this node is read-only (dmesg), and make it writable: "
            "mount -o remount,rw /k",
        ),
        (
            MachineFault(FaultKind.IO, "/k/x"),
            "see the kernel's log (dmesg): the device of the file system of /k/x fails",
        ),
        (
            MachineFault(FaultKind.DENIED, "/k/x"),
            "let the agent use /k/x: see its owner and mode, its attributes (lsattr), and the log "
            "of the security module (dmesg)",
        ),
        (
            MachineFault(FaultKind.DESCRIPTORS),
            "raise the agent's limit of open files (LimitNOFILE in its unit), or the machine's "
            "(sysctl fs.file-max)",
        ),
        (
            MachineFault(FaultKind.MEMORY),
            "free memory on this node: kubeletpy explain --node shows who uses it",
        ),
        (
            MachineFault(FaultKind.THREADS),
            "end processes of this node, or raise TasksMax of the agent's unit or "
            "kernel.threads-max (sysctl)",
        ),
    ],
)
def test_faults_of_the_machine(fault: MachineFault, found: str) -> None:
    """The data decides, whatever the message is."""
    cause = Cause(KIND.MACHINE, fault=fault)
    outcome = SyncOutcome(error="any words", step=Step.VOLUMES, cause=cause)
    waits = not_ready(waiting("ContainerCreating"))
    notified = explain(facts(status=waits, last_sync=LastSync(Stage.SYNC, outcome, NOW - 3)))
    assert (notified.cause, notified.hint) == ("node-fault", found)
    error = StartError("CreateContainerConfigError", "any words", NOW + 7, cause=cause)
    notified = explain(facts(status=waits, start_errors={"main": error}))
    assert (notified.cause, notified.hint) == ("node-fault", found)


def test_a_disk_of_the_runtime_that_is_full() -> None:
    why = "CreateContainerError: failed to create snapshot: mkdir /x: no space left on device"
    found = advice(facts(), Wait(WaitKind.START_ERROR, "main", why))
    assert found.startswith("free space or inodes on the file system that the message names")
