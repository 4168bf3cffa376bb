"""The bounds of a response, to the byte, and which codes are final."""

from __future__ import annotations

import pytest

from kubeletpy.probes.handlers.http_messages import MalformedResponse, ResponseReader

KEEP = 100
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def outcome(data: bytes, keep: int = KEEP) -> tuple[int, bytes, bool] | str:
    """Status, body and whether it is complete; or the error message."""
    reader = ResponseReader(keep)
    try:
        reader.feed(data)
    except MalformedResponse as error:
        return str(error)
    return reader.status, bytes(reader.body), reader.done


EMPTY = b"Content-Length: 0\r\n\r\n"


@pytest.mark.parametrize("code", [100, 102, 103, 199])
def test_interim_responses_are_skipped(code: int) -> None:
    interim = b"HTTP/1.1 %d Wait\r\n\r\n" % code
    assert outcome(interim) == (0, b"", False)
    assert outcome(interim * 64 + b"HTTP/1.1 200 OK\r\n" + EMPTY) == (200, b"", True)
    assert outcome(interim * 65) == "more than 64 interim responses"


@pytest.mark.parametrize("code", [101, 200, 204, 304, 599])
def test_all_other_codes_are_final(code: int) -> None:
    assert outcome(b"HTTP/1.1 %d X\r\n" % code + EMPTY) == (code, b"", True)


@pytest.mark.parametrize("code", [101, 204, 304])
def test_responses_without_body(code: int) -> None:
    assert outcome(b"HTTP/1.1 %d X\r\nContent-Length: 5\r\n\r\nhello" % code) == (code, b"", True)


def head_of(size: int, code: int = 200) -> bytes:
    start = b"HTTP/1.1 %d OK\r\nContent-Length: 0\r\nX: " % code
    return start + b"x" * (size - len(start) - 4) + b"\r\n\r\n"


@pytest.mark.parametrize("interim", [0, 30_000])
def test_heads_are_bounded_to_the_byte(interim: int) -> None:
    before = head_of(interim, 103) if interim else b""
    assert outcome(before + head_of(65536 - interim)) == (200, b"", True)
    too_long = "server response headers exceeded 65536 bytes"
    assert outcome(before + head_of(65537 - interim)) == too_long
    # an incomplete head fails at the same length, since its end cannot fit
    assert outcome(before + head_of(65536 - interim + 99)[: 65536 - interim]) == (0, b"", False)
    assert outcome(before + head_of(65536 - interim + 99)[: 65537 - interim]) == too_long


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\n\n", "malformed HTTP response b''"),
        (b"HTTP/2", (0, b"", False)),
        (b"HTTP/2 ", "malformed HTTP response b'HTTP/2 '"),
        (b"HTTP/1.", (0, b"", False)),
        (b"x" * 50, f"malformed HTTP response {b'x' * 40!r}"),
        (b"HTTP/1.1 20 OK\r\n\r\n", "malformed HTTP response b'HTTP/1.1 20 OK'"),
        (
            b"HTTP/1.1 20 " + b"x" * 29 + b"\r\n\r\n",
            f"malformed HTTP response {b'HTTP/1.1 20 ' + b'x' * 28!r}",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 41 + b"\r\n\r\n",
            f"bad Content-Length {'9' * 40!r}",
        ),
    ],
)
def test_errors_about_the_start_of_a_response(
    data: bytes, expected: tuple[int, bytes, bool] | str
) -> None:
    assert outcome(data) == expected


@pytest.mark.parametrize(
    ("length", "fine"),
    [(b"9" * 18, True), (b"9" * 19, False), (b"", False), (b"+5", False), (b"\xb2", False)],
)
def test_lengths(length: bytes, fine: bool) -> None:
    found = outcome(b"HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\nabc" % length)
    assert found == (
        (200, b"abc", False) if fine else f"bad Content-Length {length.decode('latin-1')!r}"
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"x" * 9, (200, b"x" * 9, False)),
        (b"x" * 10, (200, b"x" * 10, True)),
        (b"x" * 11, (200, b"x" * 10, True)),
    ],
)
def test_enough_of_a_body_is_all(body: bytes, expected: tuple[int, bytes, bool]) -> None:
    assert outcome(b"HTTP/1.1 200 OK\r\n\r\n" + body, 10) == expected
    assert outcome(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + body, 10) == expected
    assert outcome(CHUNKED + b"63\r\n" + body, 10) == expected


ODD = "malformed chunked encoding"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"0", (200, b"", False)),
        (b"0\n", (200, b"", True)),
        (b"1\nx", (200, b"x", False)),
        (b"1\nx\n0\n", (200, b"x", True)),
        (b"1\nx\r\n0\n", (200, b"x", True)),
        (b"1\nx \n0\n", ODD),
        (b"\n", ODD),
        (b" a ;x\n0123456789\n0\n", (200, b"0123456789", True)),
        (b"1" + b" " * 254 + b"\nx", (200, b"x", False)),
        (b"1" + b" " * 254, (200, b"", False)),
        (b"1" + b" " * 255, ODD),
        (b"1" + b" " * 255 + b"\nx", ODD),
    ],
)
def test_chunks(data: bytes, expected: tuple[int, bytes, bool] | str) -> None:
    assert outcome(CHUNKED + data) == expected


def test_non_data_in_chunks_is_bounded_to_the_byte() -> None:
    """A line may have 16 bytes and twice what is in its chunk; together they have 16 KiB more."""
    line = b"1" + b" " * 199 + b"\n"  # 201 bytes, 183 too many
    whole = (line + b"x\n") * 89  # 16,287 of 16,384
    assert outcome(CHUNKED + whole, 1000) == (200, b"x" * 89, False)
    assert outcome(CHUNKED + whole + b"1" + b" " * 113 + b"\nx", 1000) == (200, b"x" * 90, False)
    too_much = "chunked encoding contains too much non-data"
    assert outcome(CHUNKED + whole + b"1" + b" " * 114 + b"\nx", 1000) == too_much
    # a large chunk offsets earlier non-data, but not later non-data
    amends = b"40" + b"\n" + b"x" * 64 + b"\n"
    later = CHUNKED + amends + whole
    assert outcome(later + b"1" + b" " * 113 + b"\nx", 1000) == (200, b"x" * 154, False)
    assert outcome(later + b"1" + b" " * 114 + b"\nx", 1000) == too_much
    assert outcome(CHUNKED + whole + amends + line, 1000) == (200, b"x" * 153, False)
