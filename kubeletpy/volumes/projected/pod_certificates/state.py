"""One podCertificate source: its requests, its state, and the next step. Pure.

A request is sent, its answer waited for, its certificate used, and a new one requested when that is
due to be refreshed. A refusal is final for the pod. Times are Unix seconds.

Source: docs/reference/behaviour-storage.md, sx.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Hidden, HidesFields, Struct, replace
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.projected.trust_anchors import block, certificates

ISSUED, DENIED, FAILED = "Issued", "Denied", "Failed"
MAX_CHAIN_CHARACTERS = 256 * 1024
"""Length of all certificates in one request; a chain has a few thousand characters."""


class CertificateRequestStatus(HidesFields, Struct, frozen=True):
    """The status of a request. Times are Unix seconds."""

    outcome: str = ""
    """ISSUED, DENIED or FAILED; empty: the signer has not answered."""
    reason: str = ""
    message: str = ""
    chain: Hidden[bytes] = b""
    refresh_from: float = 0.0
    not_after: float = 0.0


def answer_of(obj: JSON) -> CertificateRequestStatus:
    """The answer in a request; one that can't be read is FAILED."""
    status = obj.get("status") or {}
    for condition in status.get("conditions") or ():
        outcome = condition.get("type")
        if outcome in (DENIED, FAILED):
            reason, message = condition.get("reason") or "", condition.get("message") or ""
            return CertificateRequestStatus(outcome, str(reason), str(message))
        if outcome == ISSUED:
            return _issued(status)
    return CertificateRequestStatus()


def _issued(status: Mapping[str, Any]) -> CertificateRequestStatus:
    text = status.get("certificateChain")
    if not isinstance(text, str) or len(text) > MAX_CHAIN_CHARACTERS:
        return CertificateRequestStatus(
            FAILED, "Unreadable", "its certificateChain is missing or too long"
        )
    chain = b"".join(map(block, certificates(text)))
    if not chain:
        return CertificateRequestStatus(
            FAILED, "Unreadable", "its certificateChain holds no certificate"
        )
    try:
        refresh_from = parse_time(status["beginRefreshAt"])
        not_after = parse_time(status["notAfter"])
    except (KeyError, TypeError, ValueError):
        return CertificateRequestStatus(
            FAILED, "Unreadable", "its beginRefreshAt or notAfter is missing"
        )
    return CertificateRequestStatus(ISSUED, "", "", chain, refresh_from, not_after)


def request_object(
    pod: Pod,
    source: Mapping[str, Any],
    proof: bytes,
    *,
    account_uid: str,
    node_name: str,
    node_uid: str,
    api_version: str,
) -> JSON:
    """The request to create for one source; ``proof`` is PKCS #10 in DER, signed with the key."""
    spec: JSON = {
        "signerName": source.get("signerName") or "",
        "podName": pod.name,
        "podUID": pod.uid,
        "serviceAccountName": account_of(pod),
        "serviceAccountUID": account_uid,
        "nodeName": node_name,
        "nodeUID": node_uid,
        "stubPKCS10Request": base64.b64encode(proof).decode(),
    }
    if source.get("maxExpirationSeconds") is not None:
        spec["maxExpirationSeconds"] = source["maxExpirationSeconds"]
    if source.get("userAnnotations"):
        spec["unverifiedUserAnnotations"] = source["userAnnotations"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
    return {
        "apiVersion": api_version,
        "kind": "PodCertificateRequest",
        "metadata": {
            "namespace": pod.namespace,
            "generateName": "req-",
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def account_of(pod: Pod) -> str:
    """The name of the service account that a pod runs as."""
    return pod.spec.get("serviceAccountName") or "default"


ABANDON_S = 600.0
"""After this long a request that was never seen counts as deleted."""
OVERDUE_S = 600.0
"""After this long past its refresh a certificate is overdue."""
JITTER_S = 300.0
"""The most that is added to the two times above and to the time of a refresh."""
AGAIN_S = 30.0
"""At least this long between two requests that nobody answered: a signer, or whoever deletes
requests, decides how many of them there are."""
RETRY_S = (1.0, 600.0)
"""The first and longest wait after a request that could not be created."""


class HeldCertificate(HidesFields, Struct, frozen=True):
    """The key and certificates (PEM) in use."""

    key: Hidden[bytes]
    chain: Hidden[bytes]
    refresh_at: float
    not_after: float


class SentRequest(HidesFields, Struct, frozen=True):
    """A request that was created."""

    name: str
    key: Hidden[bytes]
    since: float
    abandon_at: float
    seen: bool = False
    """Whether the watch has shown it."""


class Refusal(Struct, frozen=True):
    """A final answer without a certificate."""

    name: str
    outcome: str
    """DENIED or FAILED."""
    reason: str
    message: str


class SourceState(Struct, frozen=True):
    """The state of one source: its certificate, its request, or its refusal."""

    held: HeldCertificate | None = None
    sent: SentRequest | None = None
    refusal: Refusal | None = None
    reported: frozenset[Reason] = frozenset()
    """Which events have been emitted about the certificate in use."""
    retry_at: float = 0.0
    """No request is sent before this."""
    failures: int = 0
    """Requests in a row that could not be created."""
    problem: str = ""
    """Why there is no request now, if one was tried or has disappeared."""


class SourceStep(Struct, frozen=True):
    """The next step of a source.

    Attributes:
        state: the state from now on.
        request: whether a request is to be sent now.
        until: when to check again at the latest; None: only a change of the request matters.
        events: reason and message of each event to emit.
        reason: why.
    """

    state: SourceState
    request: bool
    until: float | None
    events: tuple[tuple[Reason, str], ...]
    reason: str


def advance(
    state: SourceState,
    found: CertificateRequestStatus | None,
    namespace: str,
    now: float,
    jitter: float,
) -> SourceStep:
    """The next step of a source.

    Args:
        state: the state so far.
        found: the status of the request that was created; None: the API does not show one.
        namespace: the pod's, for messages.
        now: Unix seconds.
        jitter: 0 to 1.
    """
    if state.refusal is not None:
        return SourceStep(state, False, None, (), f"the request was {_past(state.refusal.outcome)}")
    events: tuple[tuple[Reason, str], ...] = ()
    reason = ""
    if state.sent is not None:
        state, reason = _answered(state, found, namespace, now, jitter)
        if state.refusal is not None:
            events = (_refused(state.refusal, namespace),)
            return SourceStep(state, False, None, events, reason)
    state, events = _late(state, now)
    times = [at + 1 for at in _late_times(state)]
    if state.sent is not None:
        times.append(state.sent.abandon_at)
        return SourceStep(state, False, _next(times, now), events, reason)
    if state.held is not None and now < state.held.refresh_at:
        times.append(state.held.refresh_at)
        return SourceStep(state, False, _next(times, now), events, "the certificate is fresh")
    if now < state.retry_at:
        times.append(state.retry_at)
        return SourceStep(state, False, _next(times, now), events, state.problem)
    due = "the first certificate" if state.held is None else "the certificate is to be refreshed"
    return SourceStep(state, True, now, events, reason or due)


def requested(state: SourceState, name: str, key: bytes, now: float, jitter: float) -> SourceState:
    """The state after a request was created with that name for that key (PEM)."""
    sent = SentRequest(name, key, now, now + ABANDON_S + jitter * JITTER_S)
    return replace(state, sent=sent, failures=0, problem="", retry_at=0.0)


def not_requested(state: SourceState, why: str, now: float, jitter: float) -> SourceState:
    """The state after a request could not be created."""
    first, longest = RETRY_S
    wait = min(first * 2.0 ** min(state.failures, 30), longest) * (1 + jitter / 2)
    problem = f"the PodCertificateRequest could not be created: {why}"
    return replace(state, failures=state.failures + 1, retry_at=now + wait, problem=problem)


def condition(state: SourceState, now: float) -> str:
    """The name of a state in the metric ``kubelet_podcertificate_states``."""
    if state.refusal is not None:
        return _past(state.refusal.outcome)
    if state.held is None:
        return "not_yet_issued"
    if now > state.held.not_after:
        return "expired"
    return "overdue_for_refresh" if now > state.held.refresh_at + OVERDUE_S else "fresh"


def why_missing(
    state: SourceState, source: Mapping[str, Any], namespace: str, *, alone: bool = False
) -> str:
    """Why the source has no certificate, or gets no new one.

    ``alone``: the agent has started without an API server, which has not answered yet.
    """
    about = f"podCertificate of signer {source.get('signerName') or ''}: "
    refusal, sent = state.refusal, state.sent
    if refusal is not None:
        return (
            f"{about}PodCertificateRequest {namespace}/{refusal.name} was permanently "
            f"{_past(refusal.outcome)}: {_because(refusal)}; only a new pod sends another"
        )
    if alone:
        return (
            f"{about}keys are not recorded: the pod starts once the API server answers and the "
            "signer issues a certificate"
        )
    if sent is not None:
        return (
            f"{about}PodCertificateRequest {namespace}/{sent.name} waits for the signer: it is "
            "neither issued nor denied yet"
        )
    return about + (state.problem or "a certificate is about to be requested")


def _answered(
    state: SourceState,
    found: CertificateRequestStatus | None,
    namespace: str,
    now: float,
    jitter: float,
) -> tuple[SourceState, str]:
    sent = state.sent
    assert sent is not None, "there is a request"
    if found is None:
        if not sent.seen and now < sent.abandon_at:
            return state, "the request is not visible yet"
        removed = f"PodCertificateRequest {namespace}/{sent.name} disappeared without an answer"
        again = max(now, sent.since + AGAIN_S * (1 + jitter))
        return replace(state, sent=None, retry_at=again, problem=removed), removed
    if found.outcome in (DENIED, FAILED):
        refusal = Refusal(sent.name, found.outcome, found.reason, found.message)
        return replace(state, sent=None, refusal=refusal), f"the request was {found.outcome}"
    if found.outcome == ISSUED:
        refresh_at = found.refresh_from + jitter * JITTER_S
        return SourceState(
            HeldCertificate(sent.key, found.chain, refresh_at, found.not_after)
        ), "it was issued"
    if not sent.seen:
        state = replace(state, sent=replace(sent, seen=True))
    return state, "the signer has not answered"


def _late(state: SourceState, now: float) -> tuple[SourceState, tuple[tuple[Reason, str], ...]]:
    """The events about a certificate that should have been refreshed by now."""
    texts = {
        Reason.CERTIFICATE_OVERDUE_FOR_REFRESH: "PodCertificate refresh overdue",
        Reason.CERTIFICATE_EXPIRED: "PodCertificate expired",
    }
    events = tuple(
        (reason, text)
        for (reason, text), at in zip(texts.items(), _late_times(state), strict=False)
        if now > at and reason not in state.reported
    )
    reported = state.reported | {reason for reason, _ in events}
    return (replace(state, reported=reported) if events else state), events


def _late_times(state: SourceState) -> tuple[float, ...]:
    held = state.held
    return () if held is None else (held.refresh_at + OVERDUE_S, held.not_after)


def _next(times: list[float], now: float) -> float | None:
    return min((at for at in times if at > now), default=None)


def _refused(refusal: Refusal, namespace: str) -> tuple[Reason, str]:
    name = f"PodCertificateRequest {namespace}/{refusal.name}"
    if refusal.outcome == DENIED:
        return Reason.DENIED, f"{name} was denied, {_because(refusal)}"
    return Reason.FAILED, f"{name} failed, {_because(refusal)}"


def _because(refusal: Refusal) -> str:
    return f"reason={json.dumps(refusal.reason)}, message={json.dumps(refusal.message)}"


def _past(outcome: str) -> str:
    return "denied" if outcome == DENIED else "failed"
