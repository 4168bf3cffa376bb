"""Exceptions raised for error answers."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.kubeapi import errors
from kubeletpy.kubeapi.errors import ApiError, from_status


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (0, "", errors.Unavailable),
        (400, "", errors.BadRequest),
        (401, "", errors.Unauthorized),
        (402, "", ApiError),
        (403, "", errors.Forbidden),
        (404, "", errors.NotFound),
        (404, "AlreadyExists", errors.NotFound),
        (409, "", errors.Conflict),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "", errors.Removed),
        (422, "", errors.Invalid),
        (429, "", errors.TooManyRequests),
        (499, "", ApiError),
        (500, "", errors.Unavailable),
        (503, "", errors.Unavailable),
    ],
)
def test_kinds(code: int, reason: str, kind: type[ApiError]) -> None:
    found = from_status(code, {"reason": reason})
    assert (type(found), found.code, found.reason) == (kind, code, reason)
    if code:
        by_body = from_status(0, {"reason": reason, "code": code})
        assert (type(by_body), by_body.code) == (kind, code)


def test_the_http_status_precedes_the_code_of_the_body() -> None:
    assert from_status(404, {"code": 500}).code == 404


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"message": "no", "reason": "NotFound"}, "no"),
        ({"message": "", "reason": "NotFound"}, "NotFound"),
        ({"message": 5, "reason": "NotFound"}, "NotFound"),
        ({"reason": 5}, "HTTP status 404"),
        ({}, "HTTP status 404"),
        ("<html>", "HTTP status 404"),
        (None, "HTTP status 404"),
        ({"code": "x", "details": "y"}, "HTTP status 404"),
    ],
)
def test_messages(body: Any, message: str) -> None:
    found = from_status(404, body)
    assert (str(found), found.message, found.details) == (message, message, {})


@pytest.mark.parametrize(
    ("header", "seconds", "expected"),
    [
        (None, None, None),
        (None, 5, 5.0),
        (None, 0.5, 0.5),
        (None, 1, 1.0),
        (None, 0, None),
        (None, -1, None),
        (None, "5", None),
        (0.0, 5, 0.0),
        (3.0, 5, 3.0),
        (3.0, None, 3.0),
    ],
)
def test_retry_after(header: float | None, seconds: Any, expected: float | None) -> None:
    body = {"details": {"retryAfterSeconds": seconds}}
    found = from_status(429, body, retry_after=header)
    assert found.retry_after == expected
    assert found.details == body["details"]


def test_an_error_without_an_answer() -> None:
    bare = ApiError("x")
    assert (bare.code, bare.reason, bare.details, bare.retry_after) == (0, "", {}, None)
