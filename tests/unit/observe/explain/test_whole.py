"""Complete explanations as rendered: of a starting pod and of a terminating one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import to_builtins

from kubeletpy.base.structs import replace
from kubeletpy.metrics.trace.model import Step, TraceCall
from kubeletpy.observe.explain import render
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.gather import explain, line
from kubeletpy.observe.explain.model import Action, PodLine, WorkerState, WorkerView
from kubeletpy.pods.pod import HeldResource
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    Decision,
    PodRuntimeStatus,
    ProbeOutcome,
    ProbeResults,
    StartError,
)
from kubeletpy.podworkers.history import HistoryEntry
from kubeletpy.podworkers.records import Stage
from kubeletpy.probes.schedule import ProbeFinding, ProbeKind, ProbeReport
from kubeletpy.status.store import WriteProblem
from tests.kit.observe import NOW, doing, exited, facts, failed, not_ready, running, waiting
from tests.kit.pods import make_pod, make_static

S = 10**9


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day are in the reader's time zone."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def text(found: PodFacts, *, colors: bool = False) -> str:
    return render.pod(json.loads(json.dumps(to_builtins(explain(found)))), colors=colors)


def exit_record(name: str, attempt: int, code: int, began: float, ended: float) -> ContainerStatus:
    return ContainerStatus(
        f"{name}{attempt}", name, ContainerState.EXITED, exit_code=code, restart_count=attempt,
        reason="Completed" if code == 0 else "Error", started_at=int(began * S),
        finished_at=int(ended * S),
    )  # fmt: skip


def starting() -> PodFacts:
    """A sidecar runs; one container is not ready, one keeps exiting, one waits for its image."""
    pod = make_pod(
        initContainers=[
            {"name": "schema", "image": "db:1"},
            {"name": "proxy", "image": "proxy:2", "restartPolicy": "Always"},
        ],
        containers=[
            {"name": "main", "image": "web:3", "readinessProbe": {}, "startupProbe": {}},
            {"name": "jobs", "image": "jobs:4"},
        ],
        ephemeralContainers=[{"name": "debug", "image": "tools:5"}],
    )
    succeeded = {"exitCode": 0, "reason": "Completed", "containerID": "c://schema0"}
    status = not_ready(
        running(ready=False, restartCount=1),
        waiting("CrashLoopBackOff", "jobs", restartCount=2),
        phase="Running",
        podIPs=[{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
        initContainerStatuses=[
            {"name": "schema", "state": {"terminated": succeeded}, "ready": True},
            running("proxy", restartCount=0),
        ],
        ephemeralContainerStatuses=[exited(2, "debug", restartCount=0)],
    )
    bad, ok = ProbeOutcome.FAILURE, ProbeOutcome.SUCCESS
    return facts(
        pod,
        status=status,
        worker={"running": Stage.SYNC},
        runtime=PodRuntimeStatus(
            pod.uid,
            "web",
            "default",
            containers=(
                exit_record("schema", 0, 0, NOW - 25, NOW - 24.5),
                exit_record("jobs", 0, 3, NOW - 20, NOW - 18),
                exit_record("jobs", 1, 4, NOW - 8, NOW - 7),
                replace(exit_record("jobs", 2, 5, 0, NOW - 6), message="no such\nfile"),
            ),
        ),
        start_errors={"jobs": StartError("CrashLoopBackOff", "back-off 20s", NOW + 14)},
        history=(
            HistoryEntry(NOW - 29, Decision("create sandbox, attempt 0", "the pod has none")),
            HistoryEntry(NOW - 30, Decision("start container main", "it does not exist"), 2, NOW),
            HistoryEntry(NOW - 27, Decision("sync failed", "no answer", failed=True)),
            HistoryEntry(
                NOW - 26, Decision("sync failed", "no answer yet", failed=True), 3, NOW - 9
            ),
        ),
        probes=ProbeResults(startup={"main": ok}, readiness={"main": bad}),
        probe_reports=(
            ProbeReport(
                "main", ProbeKind.READINESS, bad, ProbeFinding(bad, "503"), 98.0, 2, 3, 101.0
            ),
            ProbeReport("main", ProbeKind.STARTUP, ok, ProbeFinding(ok), 95.0, 1, 1),
            ProbeReport(
                "proxy", ProbeKind.LIVENESS, ok, ProbeFinding(bad, "slow"), 90.0, 2, 3, 100.0
            ),
            ProbeReport(
                "jobs", ProbeKind.LIVENESS, None, ProbeFinding(None, "no such command"), 99.0
            ),
            ProbeReport("debug", ProbeKind.LIVENESS, None),
        ),
        trace=doing(TraceCall.PULL_IMAGE, "tools:5", 5.0, 60.0),
    )


def ending() -> PodFacts:
    """A static pod whose stop was requested 7 s ago; the API does not accept its status."""
    return facts(
        make_static(),
        worker={"terminating_at": NOW - 7, "grace": 30},
        status=not_ready(running(ready=False), phase="Running", podIPs=[]),
        trace=doing(TraceCall.STOP_CONTAINER, "main", 6.5, 30.0),
        last_sync=failed(Step.KILL, "context deadline exceeded", Stage.TERMINATING),
        next_sync_at=None,
        write_problem=WriteProblem(NOW - 70, "connection refused", 4),
    )


def unknown() -> PodFacts:
    """A pod without a worker."""
    return replace(
        facts(make_static(), status=not_ready()),
        record=None, runtime_error="no such socket", name_holder="uid-old", awaits_admission=True,
        next_sync_at=None,
    )  # fmt: skip


def away() -> PodFacts:
    """A Ready pod with devices and CPUs; the runtime has failed for two days and omits times."""
    records = (exit_record("main", 0, 1, NOW - 60, 0), exit_record("main", 1, 1, 0, 0))
    return facts(
        status={
            "containerStatuses": [
                {"name": "main", "state": {"running": {}}, "ready": True, "restartCount": 1}
            ]
        },
        held=(
            HeldResource("main", "cpu", "1-2", (0, 1)),
            HeldResource("main", "vendor.example/gpu", "gpu0"),
        ),
        runtime=PodRuntimeStatus("uid-web", "web", "default", containers=records),
        runtime_error="no such socket",
        trace=doing(TraceCall.CREATE_CONTAINER, "main", 5.0),
        wrong_since=NOW - 2 * 86400,
    )


def refused() -> PodFacts:
    """A pod that was refused before any of its containers existed."""
    status = not_ready(phase="Failed", reason="NodePorts", startTime="2023-11-14T22:14:00Z")
    return replace(facts(status=status), record=None, next_sync_at=None)


AWAY = """\
default/web: running and ready; but the container runtime can't be used: no such socket

  Since      2023-11-12 22:15:00 (2d ago)
  To do      see whether the container runtime runs, and its log
  Worker     syncing for 30s
  Next sync  in 42s, or on the next event
  Status     Running, Ready
  Address    10.0.0.1
  UID        uid-web

Waits for
  runtime                     no such socket
  runtime call  main  for 5s  CreateContainer

Is doing
  CreateContainer  main  for 5s

Containers
  main  container  running  ready  1 restart  img

Has of the machine
  main  cpu                 1-2   NUMA node 0, 1
  main  vendor.example/gpu  gpu0

Ended runs
  main  run 1  exit code 1 Error
  main  run 2  exit code 1 Error
"""

REFUSED = """\
default/web: refused by this node: NodePorts; that is final

  Since      22:14:00 (1m ago)
  To do      use another hostPort, or end the pod that has it
  Final      this pod is not tried again: what owns it, or you, make another
  Worker     none
  Status     Failed, not Ready
  Address    10.0.0.1
  UID        uid-web

Containers
  main  container  waiting  not ready  0 restarts  img
"""

STARTING = """\
default/web: running, not ready: image tools:5 is being pulled for 5s

  Since      22:14:55 (5s ago)
  To do      if it takes too long, see the registry, and the runtime's log; only the runtime \
limits a pull
  Worker     syncing for 30s, a sync runs
  Next sync  in 42s, or on the next event
  Status     Running, not Ready
  Address    10.0.0.1, fd00::1
  UID        uid-web

Waits for
  image pull     tools:5  for 5s, until 22:15:55 (in 55s)  is being pulled
  crash backoff  jobs     until 22:15:14 (in 14s)          CrashLoopBackOff: back-off 20s
  probe          main     for 20s                          its readiness probe fails: 503

Is doing
  pull image  tools:5  for 5s  at most until 22:15:55

Containers
  schema  init       terminated Completed (0)  ready      0 restarts  db:1
  proxy   sidecar    running for 20s           ready      0 restarts  proxy:2
  main    container  running for 20s           not ready  1 restart   web:3
  jobs    container  waiting CrashLoopBackOff  not ready  2 restarts  jobs:4
  debug   ephemeral  terminated Error (2)      not ready  0 restarts  tools:5

Probes
  main   readiness  counts as failure  last failure          2s ago   next in 1s  503
  main   startup    counts as success  last success          5s ago
  proxy  liveness   counts as success  last failure, 2 of 3  10s ago  next now    slow
  jobs   liveness                      last error, 0 of 1    1s ago               no such command
  debug  liveness                      not run yet

Ended runs
  jobs    run 3  exit code 5 Error      6s ago               no such file
  jobs    run 2  exit code 4 Error      7s ago   after 1s
  jobs    run 1  exit code 3 Error      18s ago  after 2s
  debug          exit code 2 Error      20s ago  after 0s
  schema  run 1  exit code 0 Completed  24s ago  after 0.5s

Last errors
  9s ago   3 times  sync failed  no answer yet
  27s ago           sync failed  no answer

Last decisions
  now      2 times  start container main       it does not exist
  29s ago           create sandbox, attempt 0  the pod has none
"""

ENDING = """\
default/static: terminating for 7s: container main has not ended 7s after its stop was requested; \
it is killed in 24s

  Since      22:14:53 (7s ago)
  Worker     terminating for 7s, grace period 30s
  Status     Running, not Ready
  UID        uid-static (static pod)

Waits for
  grace period  main        for 7s, until 22:15:23 (in 24s)  StopContainer
  stop                      for 3s                           context deadline exceeded
  API write     pod status  for 1m10s                        connection refused (tried 4 times)

Is doing
  StopContainer  main  for 6.5s  at most until 22:15:23

Containers
  main  container  running for 20s  not ready  0 restarts  img
"""

UNKNOWN = """\
default/static: not started: the container runtime can't be used: no such socket

  To do      see whether the container runtime runs, and its log
  Worker     none
  Status     Pending, not Ready
  Address    10.0.0.1
  UID        uid-static (static pod)

Waits for
  runtime                      no such socket
  static name  default/static  the static pod of the same name before it (uid uid-old) still ends
  admission                    whether it may run here is not decided yet: \
other pods give way, or the API is queried

Containers
  main  container  waiting  not ready  0 restarts  img
"""


@pytest.mark.parametrize(
    ("found", "reported"),
    [
        (starting(), STARTING),
        (ending(), ENDING),
        (unknown(), UNKNOWN),
        (away(), AWAY),
        (refused(), REFUSED),
    ],
    ids=["starting", "ending", "unknown", "away", "refused"],
)
def test_the_complete_text(found: PodFacts, reported: str) -> None:
    assert text(found) == reported


def test_headings_are_bold_and_the_answer_is_red_or_green() -> None:
    coloured = text(ending(), colors=True)
    heads = [each for each in coloured.split("\n") if "\x1b" in each]
    assert heads == [
        "\x1b[1mdefault/static\x1b[0m: \x1b[31mterminating for 7s: container main has not ended "
        "7s after its stop was requested; it is killed in 24s\x1b[0m",
        "\x1b[1mWaits for\x1b[0m",
        "\x1b[1mIs doing\x1b[0m",
        "\x1b[1mContainers\x1b[0m",
    ]
    for code in ("\x1b[1m", "\x1b[31m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == ENDING
    assert "\x1b[32mrunning and ready, for 20s\x1b[0m" in text(facts(), colors=True)


def test_all_pods_in_columns() -> None:
    lines = [json.loads(json.dumps(to_builtins(line(each)))) for each in (facts(), unknown())]
    assert render.pods(lines) == (
        "default/static  not started: the container runtime can't be used: no such socket\n"
        "default/web     running and ready, for 20s\n"
    )
    assert render.pods(lines, colors=True) == (
        "default/static  \x1b[31mnot started: the container runtime can't be used: no such socket"
        "\x1b[0m\n"
        "default/web     running and ready, for 20s\n"
    )
    lines[1]["verdict"] = 2001 * "x"
    assert f"  {1999 * 'x'}…\n" in render.pods(lines)


def test_the_newest_of_each_list_are_shown() -> None:
    records = [exit_record("main", n, 1, n, n + 0.5) for n in range(1, 9)]
    history = [
        HistoryEntry(NOW - n, Decision(f"{'error' if failed else 'decision'} {n}", "", failed))
        for n in range(20, 0, -1)
        for failed in (True, False)
    ]
    runtime = PodRuntimeStatus("uid", "web", "default", containers=tuple(records))
    reported = text(facts(runtime=runtime, history=tuple(history)))
    found = [each.split() for each in reported.split("\n")]
    assert [row[1:3] for row in found if row[:1] == ["main"] and row[1] == "run"] == [
        ["run", str(n + 1)] for n in range(8, 2, -1)
    ]
    assert [row[-1] for row in found if "error" in row] == [str(n) for n in range(1, 6)]
    assert [row[-1] for row in found if "decision" in row] == [str(n) for n in range(1, 13)]


def test_the_complete_explanation() -> None:
    """Fields of the socket's answer that the text does not show."""
    found = explain(starting())
    assert (found.at, found.phase, found.ready, found.healthy, found.static) == (
        NOW, "Running", False, False, False,
    )  # fmt: skip
    assert found.worker == WorkerView(
        state=WorkerState.SYNCING,
        since=NOW - 30,
        stage="sync",
        grace=None,
        next_sync_at=NOW + 42,
        last_sync_at=None,
        last_error="",
    )
    assert [(one.id, one.exit_code, one.message) for one in found.containers] == [
        ("", 0, ""),
        ("proxy", None, ""),
        ("main", None, ""),
        ("", None, ""),
        ("", 2, ""),
    ]
    assert found.actions == (
        Action(what=TraceCall.PULL_IMAGE, subject="tools:5", since=NOW - 5, until=NOW + 55),
    )
    assert [one.last_at for one in found.decisions] == [None, NOW]
    assert explain(ending()).worker == WorkerView(
        state=WorkerState.TERMINATING,
        since=NOW - 7,
        stage="",
        grace=30,
        next_sync_at=None,
        last_sync_at=NOW - 3,
        last_error="context deadline exceeded",
    )
    assert explain(unknown()).worker == WorkerView(
        state=WorkerState.NONE,
        since=None,
        stage="",
        grace=None,
        next_sync_at=None,
        last_sync_at=None,
        last_error="",
    )
    tried = explain(replace(unknown(), last_sync=failed(Step.CGROUP, "busy"))).worker
    assert (tried.last_sync_at, tried.last_error) == (NOW - 3, "busy")
    assert line(ending()) == PodLine(
        namespace="default",
        name="static",
        uid="uid-static",
        state=WorkerState.TERMINATING,
        healthy=False,
        verdict="terminating for 7s: container main has not ended 7s after its stop was "
        "requested; it is killed in 24s",
        cause="grace-period",
        first_seen=NOW - 7,
    )


@pytest.mark.parametrize(
    ("changes", "worker"),
    [
        ({"terminating_at": NOW - 7, "grace": 0}, "terminating for 7s, grace period 0s"),
        ({"terminating_at": NOW - 7}, "terminating for 7s"),
        (
            {"terminating_at": NOW - 7, "terminated_at": NOW - 2, "grace": 5},
            "terminated for 2s, grace period 5s",
        ),
        (
            {"terminating_at": NOW - 7, "terminated_at": NOW - 2, "grace": 5, "finished": True},
            "finished for 2s",
        ),
    ],
)
def test_the_grace_period_of_a_worker(changes: dict[str, Any], worker: str) -> None:
    assert f"\n  Worker     {worker}\n" in text(facts(worker=changes))


def test_a_probe_that_counts_and_has_not_run_since() -> None:
    report = ProbeReport("main", ProbeKind.LIVENESS, ProbeOutcome.SUCCESS)
    assert "\n  main  liveness  counts as success  not run yet\n" in text(
        facts(probe_reports=(report,))
    )
