"""Transitions of a podCertificate source, by its state, the API and the time."""

from __future__ import annotations

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.volumes.projected.pod_certificates.state import (
    AGAIN_S,
    DENIED,
    FAILED,
    ISSUED,
    CertificateRequestStatus,
    HeldCertificate,
    Refusal,
    SentRequest,
    SourceState,
    advance,
    condition,
    not_requested,
    requested,
    why_missing,
)

KEY, NEXT_KEY = b"key", b"next key"
PENDING = CertificateRequestStatus()
GIVEN = CertificateRequestStatus(ISSUED, "", "", b"chain", 2000.0, 5000.0)
REFUSED = CertificateRequestStatus(DENIED, "UnsupportedKeyType", 'try "ED25519"')
HELD = HeldCertificate(KEY, b"chain", refresh_at=2000.0, not_after=5000.0)
ASKED = SentRequest("req-1", KEY, since=1000.0, abandon_at=1600.0)
SEEN = replace(ASKED, seen=True)
ASKED_AGAIN = SentRequest("req-2", NEXT_KEY, since=2000.0, abandon_at=2600.0, seen=True)
DENIAL = Refusal("req-1", DENIED, "UnsupportedKeyType", 'try "ED25519"')
OVERDUE, EXPIRED = Reason.CERTIFICATE_OVERDUE_FOR_REFRESH, Reason.CERTIFICATE_EXPIRED


@pytest.mark.parametrize(
    ("state", "found", "now", "request_now", "until"),
    [
        pytest.param(SourceState(), None, 1000.0, True, 1000.0, id="the first request"),
        pytest.param(
            SourceState(retry_at=1010.0, problem="no"),
            None,
            1000.0,
            False,
            1010.0,
            id="waits to retry",
        ),
        pytest.param(SourceState(retry_at=1010.0), None, 1010.0, True, 1010.0, id="retries"),
        pytest.param(SourceState(sent=ASKED), None, 1001.0, False, 1600.0, id="not visible yet"),
        pytest.param(SourceState(sent=ASKED), PENDING, 1001.0, False, 1600.0, id="no answer yet"),
        pytest.param(SourceState(sent=SEEN), None, 1020.0, False, 1000.0 + AGAIN_S, id="deleted"),
        pytest.param(
            SourceState(sent=SEEN), None, 1040.0, True, 1040.0, id="deleted after a while"
        ),
        pytest.param(SourceState(sent=ASKED), None, 1600.0, True, 1600.0, id="never seen"),
        pytest.param(SourceState(sent=SEEN), GIVEN, 1010.0, False, 2000.0, id="issued"),
        pytest.param(SourceState(sent=SEEN), REFUSED, 1010.0, False, None, id="denied"),
        pytest.param(SourceState(refusal=DENIAL), None, 9999.0, False, None, id="stays denied"),
        pytest.param(SourceState(HELD), None, 1999.0, False, 2000.0, id="fresh"),
        pytest.param(SourceState(HELD), None, 2000.0, True, 2000.0, id="due"),
        pytest.param(
            SourceState(HELD, ASKED_AGAIN), PENDING, 2001.0, False, 2600.0, id="refreshing"
        ),
        pytest.param(SourceState(HELD, ASKED_AGAIN), GIVEN, 2001.0, True, 2001.0, id="issued, due"),
    ],
)
def test_the_next_step(
    state: SourceState,
    found: CertificateRequestStatus | None,
    now: float,
    request_now: bool,
    until: float | None,
) -> None:
    step = advance(state, found, "ns", now, 0.0)
    assert (step.request, step.until) == (request_now, until)
    assert step.reason


@pytest.mark.parametrize(
    ("state", "found", "now", "reason"),
    [
        (SourceState(), None, 1000.0, "the first certificate"),
        (SourceState(HELD), None, 2000.0, "the certificate is to be refreshed"),
        (SourceState(HELD), None, 1999.0, "the certificate is fresh"),
        (SourceState(HELD, ASKED_AGAIN), GIVEN, 2001.0, "it was issued"),
        (SourceState(sent=ASKED), PENDING, 1001.0, "the signer has not answered"),
    ],
)
def test_why_the_next_step_is_taken(
    state: SourceState, found: CertificateRequestStatus | None, now: float, reason: str
) -> None:
    assert advance(state, found, "ns", now, 0.0).reason == reason


def test_an_issued_certificate_is_used_with_the_key_it_was_requested_for() -> None:
    later = CertificateRequestStatus(ISSUED, "", "", b"new chain", 8000.0, 9000.0)
    step = advance(
        SourceState(HELD, ASKED_AGAIN, reported=frozenset({OVERDUE})), later, "ns", 2700.0, 0.5
    )
    assert step.state == SourceState(HeldCertificate(NEXT_KEY, b"new chain", 8150.0, 9000.0))


@pytest.mark.parametrize(
    ("answer", "event"),
    [
        (
            REFUSED,
            (
                Reason.DENIED,
                "PodCertificateRequest ns/req-1 was denied, "
                'reason="UnsupportedKeyType", message="try \\"ED25519\\""',
            ),
        ),
        (
            CertificateRequestStatus(FAILED, "Broken", "line\nline"),
            (
                Reason.FAILED,
                'PodCertificateRequest ns/req-1 failed, reason="Broken", message="line\\nline"',
            ),
        ),
    ],
)
def test_a_refusal_is_final_and_reported_once(
    answer: CertificateRequestStatus, event: tuple[Reason, str]
) -> None:
    step = advance(SourceState(HELD, SEEN), answer, "ns", 1010.0, 0.0)
    assert step.events == (event,)
    assert step.state.held == HELD
    assert advance(step.state, answer, "ns", 9999.0, 0.0).events == ()


def test_a_late_refresh_is_reported_once_per_certificate() -> None:
    state = SourceState(HELD, ASKED_AGAIN)
    assert advance(state, PENDING, "ns", 2600.0, 0.0).events == ()
    overdue = advance(state, PENDING, "ns", 2601.0, 0.0)
    assert [reason for reason, _ in overdue.events] == [OVERDUE]
    assert overdue.until == 5001.0
    expired = advance(overdue.state, PENDING, "ns", 5001.0, 0.0)
    assert [reason for reason, _ in expired.events] == [EXPIRED]
    assert advance(expired.state, PENDING, "ns", 6000.0, 0.0).events == ()
    assert (
        advance(SourceState(HELD), None, "ns", 5001.0, 0.0).events
        == overdue.events + expired.events
    )


def test_failed_creations_wait_longer_each_time_and_a_created_one_forgets_them() -> None:
    state, waits = SourceState(), []
    for _ in range(12):
        state = not_requested(state, "forbidden", 1000.0, 0.0)
        waits.append(state.retry_at - 1000.0)
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]
    assert not_requested(SourceState(), "forbidden", 1000.0, 1.0).retry_at == 1001.5
    made = requested(state, "req-1", KEY, 1000.0, 0.5)
    assert made == SourceState(sent=replace(ASKED, abandon_at=1750.0))


@pytest.mark.parametrize(
    ("state", "now", "expected"),
    [
        (SourceState(), 0.0, "not_yet_issued"),
        (SourceState(sent=ASKED), 0.0, "not_yet_issued"),
        (SourceState(HELD), 2600.0, "fresh"),
        (SourceState(HELD, ASKED_AGAIN), 2601.0, "overdue_for_refresh"),
        (SourceState(HELD), 5000.0, "overdue_for_refresh"),
        (SourceState(HELD), 5001.0, "expired"),
        (SourceState(HELD, refusal=DENIAL), 0.0, "denied"),
        (SourceState(refusal=replace(DENIAL, outcome=FAILED)), 0.0, "failed"),
    ],
)
def test_its_name_in_the_metric(state: SourceState, now: float, expected: str) -> None:
    assert condition(state, now) == expected


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (SourceState(), "a certificate is about to be requested"),
        (
            SourceState(sent=ASKED),
            "ns/req-1 waits for the signer: it is neither issued nor denied yet",
        ),
        (SourceState(refusal=DENIAL), "ns/req-1 was permanently denied: reason="),
        (not_requested(SourceState(), "no", 0.0, 0.0), "could not be created: no"),
        (advance(SourceState(sent=SEEN), None, "ns", 1.0, 0.0).state, "req-1 disappeared without"),
    ],
)
def test_why_there_is_none_names_the_signer(state: SourceState, text: str) -> None:
    why = why_missing(state, {"signerName": "example.com/s"}, "ns")
    assert why.startswith("podCertificate of signer example.com/s: ")
    assert text in why


def test_an_agent_without_an_api_server_says_that_the_pod_waits_for_it() -> None:
    source = {"signerName": "example.com/s"}
    why = why_missing(not_requested(SourceState(), "refused", 0.0, 0.0), source, "ns", alone=True)
    assert "keys are not recorded: the pod starts once the API server answers" in why


def test_no_key_is_shown() -> None:
    assert "key" not in repr(SourceState(HELD, ASKED)).replace("keyType", "")
    assert "chain" not in repr(HELD)
