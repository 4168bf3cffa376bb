"""Results and errors read from the response to a unary gRPC call."""

from __future__ import annotations

import pytest

from kubeletpy.remote.errors import Code
from kubeletpy.remote.grpc_message import (
    CallFailed,
    GrpcResponse,
    framed,
    head,
    read_message,
    reset_code,
)

GRPC = {"content-type": "application/grpc"}


def test_the_head() -> None:
    found = dict(head("10.0.0.1:80", "/a.B/C", "kube-probe/1.36", 1.5))
    assert found == {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": b"/a.B/C",
        b":authority": b"10.0.0.1:80",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
        b"user-agent": b"kube-probe/1.36",
        b"grpc-timeout": b"1500m",
    }
    assert dict(head("a", "/", "x", 1, tls=True))[b":scheme"] == b"https"


@pytest.mark.parametrize(("within", "text"), [(-1.0, b"1m"), (1e9, b"99999999m")])
def test_the_time_has_eight_digits_at_most(within: float, text: bytes) -> None:
    assert dict(head("a", "/", "x", within))[b"grpc-timeout"] == text


@pytest.mark.parametrize(
    "kind", ["application/grpc", "application/grpc+proto", "application/grpc;x"]
)
def test_an_answer(kind: str) -> None:
    headers = {"content-type": kind}
    assert read_message(GrpcResponse(200, headers, framed(b"abc"), {"grpc-status": "0"})) == b"abc"


@pytest.mark.parametrize(
    ("response", "code", "text"),
    [
        # errors of the service: also as headers only
        (
            GrpcResponse(200, GRPC, b"", {"grpc-status": "5", "grpc-message": "a%20b%"}),
            "NOT_FOUND",
            "a b%",
        ),
        (GrpcResponse(200, GRPC | {"grpc-status": "12"}, b"", {}), "UNIMPLEMENTED", ""),
        (GrpcResponse(200, GRPC, b"", {"grpc-status": "16"}), "UNAUTHENTICATED", ""),
        (GrpcResponse(200, GRPC, b"", {"grpc-status": "17"}), "UNKNOWN", ""),
        (GrpcResponse(200, GRPC, b"", {"grpc-status": "-1"}), "UNKNOWN", ""),
        (GrpcResponse(200, GRPC, b"", {"grpc-status": "9" * 5000}), "UNKNOWN", ""),
        (GrpcResponse(200, GRPC, b"", {"grpc-status": "²"}), "UNKNOWN", ""),
        (GrpcResponse(200, GRPC, framed(b""), {}), "INTERNAL", "without sending trailers"),
        # answers that no gRPC server sends
        (GrpcResponse(404, {}, b"", {}), "UNIMPLEMENTED", "404"),
        (GrpcResponse(503, GRPC, b"", {}), "UNAVAILABLE", "503"),
        (GrpcResponse(401, GRPC, b"", {}), "UNAUTHENTICATED", "401"),
        (GrpcResponse(200, {"content-type": "text/html"}, b"", {}), "UNKNOWN", "'text/html'"),
        (GrpcResponse(200, {"content-type": "application/grpcx"}, b"", {}), "UNKNOWN", "grpcx"),
        # messages
        (GrpcResponse(200, GRPC, b"", {"grpc-status": "0"}), "INTERNAL", "no response message"),
        (
            GrpcResponse(200, GRPC, b"\0\0\0\0", {"grpc-status": "0"}),
            "INTERNAL",
            "no response message",
        ),
        (GrpcResponse(200, GRPC, b"\0\xff\xff\xff\xff", {"grpc-status": "0"}), "INTERNAL", "EOF"),
        (
            GrpcResponse(200, GRPC, b"\1\0\0\0\1x", {"grpc-status": "0"}),
            "UNIMPLEMENTED",
            "compressed",
        ),
        (
            GrpcResponse(200, GRPC, framed(b"") * 2, {"grpc-status": "0"}),
            "INTERNAL",
            "more than one",
        ),
    ],
)
def test_errors_of_service_and_transport(response: GrpcResponse, code: str, text: str) -> None:
    with pytest.raises(CallFailed) as failed:
        read_message(response)
    assert failed.value.code is Code[code]
    assert text in failed.value.details


def test_details_are_cut() -> None:
    assert len(CallFailed(Code.INTERNAL, "x" * 5000).details) == 1024


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("REFUSED_STREAM", Code.UNAVAILABLE),
        ("CANCEL", Code.CANCELLED),
        ("ENHANCE_YOUR_CALM", Code.RESOURCE_EXHAUSTED),
        ("INADEQUATE_SECURITY", Code.PERMISSION_DENIED),
        ("NO_ERROR", Code.INTERNAL),
        ("code 77", Code.INTERNAL),
    ],
)
def test_resets(name: str, code: Code) -> None:
    assert reset_code(name) is code
