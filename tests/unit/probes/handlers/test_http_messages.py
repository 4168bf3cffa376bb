"""The bytes that an httpGet action sends, for any content of its fields."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy.probes.handlers.http_messages import (
    MAX_CHUNKS,
    MAX_HEAD,
    MAX_INTERIM,
    BadHandlerRequest,
    MalformedResponse,
    ResponseReader,
    redirected,
    request_for,
)
from kubeletpy.probes.handlers.outcome import HandlerError, host_port, is_address, resolve_port
from tests.kit.costs import calls, is_linear

PORTS: Any = [{"name": "web", "containerPort": 8080}, {"name": "90", "containerPort": 91}]


def lines(action: dict[str, Any], ip: str = "10.0.0.9") -> list[str]:
    request = request_for(action, PORTS, ip, "kube-probe/1.36")  # type: ignore[arg-type]
    text = request.encoded().decode()
    assert text.endswith("\r\n\r\n")
    return text[:-4].split("\r\n")


@pytest.mark.parametrize(
    ("port", "number"), [(1, 1), ("web", 8080), ("90", 91), ("8443", 8443), (65535, 65535)]
)
def test_ports(port: object, number: int) -> None:
    assert resolve_port(port, PORTS) == number


@pytest.mark.parametrize(
    "port", [0, -1, 65536, "nope", "", None, True, "99999", "000080", "-1", 3.5, [80]]
)
def test_no_such_port(port: object) -> None:
    with pytest.raises(HandlerError):
        resolve_port(port, PORTS)


@pytest.mark.parametrize(
    ("port", "message"),
    [
        ("nope", "port nope not found"),
        ("n" * 64, f"port {'n' * 63} not found"),
        ("123456", "port 123456 not found"),
        ("8²", "port 8² not found"),
        ("99999", "invalid port number: 99999"),
        (True, "invalid port number: True"),
        (-1, "invalid port number: -1"),
        (10**30, "invalid port number: 10000000000000000000"),
    ],
)
def test_messages_about_unknown_ports(port: object, message: str) -> None:
    with pytest.raises(HandlerError, match=f"^{message}$"):
        resolve_port(port, PORTS)


@pytest.mark.parametrize(
    ("host", "address", "with_port"),
    [
        ("10.0.0.1", True, "10.0.0.1:80"),
        ("fd00::1", True, "[fd00::1]:80"),
        ("fe80::1%eth0", True, "[fe80::1%eth0]:80"),
        ("example.com", False, "example.com:80"),
        ("", False, ":80"),
    ],
)
def test_hosts(host: str, address: bool, with_port: str) -> None:
    assert (is_address(host), host_port(host, 80)) == (address, with_port)


def test_a_plain_request() -> None:
    assert lines({"port": "web", "path": "/healthz?full=1"}) == [
        "GET /healthz?full=1 HTTP/1.1",
        "Host: 10.0.0.9:8080",
        "User-Agent: kube-probe/1.36",
        "Accept: */*",
        "Connection: close",
    ]


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("", "/"),
        ("/", "/"),
        ("healthz", "/healthz"),
        ("/a b", "/a%20b"),
        ("/a%2Fb", "/a%2Fb"),
        ("/100%", "/100%25"),
        ("/x#part", "/x"),
        ("/x?a=b c", "/x?a=b%20c"),
        ("/ü", "/%C3%BC"),
        ("/a\r\nX: y", "/aX:%20y"),
        ("http://other.example/p?q", "/p?q"),
        ("//[bad", "///%5Bbad"),
    ],
)
def test_paths(path: str, target: str) -> None:
    first = lines({"port": 80, "path": path})[0]
    assert first.startswith("GET /")
    if path != "//[bad":
        assert first == f"GET {target} HTTP/1.1"


def test_headers_are_added_without_replacing_the_agents() -> None:
    headers = [
        {"name": "X-One", "value": " 1 "},
        {"name": "X-One", "value": "2"},
        {"name": "host", "value": "shop.example"},
        {"name": "Content-Length", "value": "9"},
        {"name": "Transfer-Encoding", "value": "chunked"},
        {"name": "Connection", "value": "keep-alive"},
        {"name": "user-agent", "value": "me"},
        {"name": "Accept", "value": ""},
        {"name": "X-Empty", "value": ""},
    ]
    assert lines({"port": 80, "httpHeaders": headers}) == [
        "GET / HTTP/1.1",
        "Host: shop.example",
        "X-One: 1",
        "X-One: 2",
        "user-agent: me",
        "X-Empty: ",
        "Connection: close",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [("X\r\nY", "1"), ("", "1"), ("X Y", "1"), ("X", "1\r\nY: 2"), ("Host", "a\r\nb"), ("X", "\0")],
)
def test_no_header_ends_a_line(name: str, value: str) -> None:
    with pytest.raises(BadHandlerRequest):
        lines({"port": 80, "httpHeaders": [{"name": name, "value": value}]})


@given(st.text(), st.text(), st.text())
def test_nothing_can_be_smuggled(path: str, name: str, value: str) -> None:
    action = {"port": 80, "path": path, "httpHeaders": [{"name": name, "value": value}]}
    try:
        sent = lines(action)
    except BadHandlerRequest:
        return
    assert sent[0].count(" ") == 2
    assert all("\n" not in line and "\r" not in line for line in sent)
    assert len(sent) <= 6


def test_ipv6_and_schemes() -> None:
    request = request_for({"port": 443, "scheme": "HTTPS"}, (), "fd00::5", "kube-lifecycle/1.36")
    assert request.tls
    assert request.url == "https://[fd00::5]:443/"
    assert b"Host: [fd00::5]:443\r\n" in request.encoded()
    assert b"User-Agent: kube-lifecycle/1.36\r\n" in request.encoded()


def test_an_unknown_scheme_is_not_sent_without_encryption() -> None:
    for scheme in ("HTTPS ", "tls", "ftp"):
        with pytest.raises(HandlerError, match="unsupported protocol scheme"):
            request_for({"port": 443, "scheme": scheme}, (), "10.0.0.1", "kube-probe/1.36")
    assert not request_for({"port": 80, "scheme": ""}, (), "10.0.0.1", "kube-probe/1.36").tls


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/next?x=1", "http://10.0.0.9:80/next?x=1"),
        ("next", "http://10.0.0.9:80/a/next"),
        ("http://10.0.0.9:81/b", "http://10.0.0.9:81/b"),
        ("https://10.0.0.9/b", "https://10.0.0.9:443/b"),
        ("http://10.0.0.8/b", None),
        ("//evil.example/b", None),
        ("http://10.0.0.9.evil.example/", None),
    ],
)
def test_redirects_stay_on_the_host(location: str, url: str | None) -> None:
    headers: Any = [{"name": "Host", "value": "shop.example"}]
    request = request_for({"port": 80, "path": "/a/", "httpHeaders": headers}, (), "10.0.0.9", "p")
    following = redirected(request, location)
    assert (following and following.url) == url
    if following is not None:
        assert following.host_header == ("" if "//" in location else "shop.example")


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("http://10.0.0.9:x/", "failed to parse Location header 'http://10.0.0.9:x/'"),
        (
            "http://10.0.0.9:x/" + "a" * 183,
            f"failed to parse Location header 'http://10.0.0.9:x/{'a' * 182}'",
        ),
        ("ftp://10.0.0.9/", 'unsupported protocol scheme "ftp"'),
        ("f" * 64 + "://10.0.0.9/", f'unsupported protocol scheme "{"f" * 63}"'),
    ],
)
def test_invalid_redirects(location: str, problem: str) -> None:
    with pytest.raises(BadHandlerRequest, match=f"^{re.escape(problem)}$"):
        redirected(request_for({"port": 80}, (), "10.0.0.9", "probe"), location)


def test_the_name_of_a_header_that_is_refused_is_shown_in_part() -> None:
    with pytest.raises(BadHandlerRequest, match=f"^invalid header field name '{' ' * 63}'$"):
        lines({"port": 80, "httpHeaders": [{"name": " " * 64, "value": ""}]})


@pytest.mark.parametrize(
    ("location", "tls", "port"),
    [
        ("http://10.0.0.9/x", False, 80),
        ("https://10.0.0.9/x", True, 443),
        ("http://10.0.0.9:443/x", False, 443),
        ("https://10.0.0.9:80/x", True, 80),
        ("//10.0.0.9/x", False, 80),
        ("/x", False, 8080),
    ],
)
def test_the_port_of_a_redirect(location: str, tls: bool, port: int) -> None:
    following = redirected(request_for({"port": 8080}, (), "10.0.0.9", "probe"), location)
    assert following is not None
    assert (following.tls, following.port) == (tls, port)


# Responses in pieces of any size, and servers that send something other than a response.

KEEP = 100
GOOD = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello", True),
    "empty": (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", 503, b"", True),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", 200, b"", True),
    "bare newlines": (b"HTTP/1.0 200 OK\nContent-Length: 1\n\nx", 200, b"x", True),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "not modified": (b"HTTP/1.1 304 Same\r\nContent-Length: 9\r\n\r\n", 304, b"", True),
    "until close": (b"HTTP/1.0 200 OK\r\n\r\nhello", 200, b"hello", False),
    "interim": (
        b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 100 Go\r\n\r\n"
        b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno",
        404,
        b"no",
        True,
    ),
    "chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
        200,
        b"abc0123456789",
        True,
    ),
    "chunks and bare newlines": (
        b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3\nabc\n0\n",
        200,
        b"abc",
        True,
    ),
    "long": (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 500, 200, b"x" * KEEP, True),
    "long chunk": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n" + b"x" * 500,
        200,
        b"x" * KEEP,
        True,
    ),
}
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BAD = [
    CHUNKED + b"\n" * 300,
    CHUNKED + b"1\r\nx\r\n\r\n",
    CHUNKED + b"1\r\nxy\r\n",
    CHUNKED + (b"1;" + b"x" * 250 + b"\r\ny\r\n") * 90,
    CHUNKED + b"-1\r\n",
    CHUNKED + b"0x1\r\ny\r\n",
    b"HTTP/1.1 100 Go\r\n\r\n" * (MAX_INTERIM + 1),
    (b"HTTP/1.1 103 Early\r\nLink: " + b"x" * 8000 + b"\r\n\r\n") * 9,
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"HTTP/2.0 200 OK\r\n\r\n",
    b"HTTP/1.1 20 OK\r\n\r\n",
    b"HTTP/1.1 2000 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 300,
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD,
    b"HTTP/1.1 100 Go\r\n\r\n" * 20 + b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD,
    b"\0" * 10,
]


def fed(data: bytes, sizes: list[int]) -> ResponseReader:
    reader = ResponseReader(KEEP)
    position = 0
    for size in [*sizes, len(data)]:
        reader.feed(data[position : position + size])
        position += size
    return reader


@given(st.sampled_from(sorted(GOOD)), st.lists(st.integers(1, 40), max_size=20))
def test_responses_in_any_pieces(name: str, sizes: list[int]) -> None:
    data, status, body, done = GOOD[name]
    reader = fed(data, sizes)
    assert (reader.status, bytes(reader.body), reader.done) == (status, body, done)
    reader.end()
    assert reader.done


@pytest.mark.parametrize("name", sorted(GOOD))
def test_responses_in_single_bytes(name: str) -> None:
    data, status, body, done = GOOD[name]
    reader = fed(data, [1] * len(data))
    assert (reader.status, bytes(reader.body), reader.done) == (status, body, done)


def test_a_bad_status_line_in_single_bytes() -> None:
    data = b"HTTP/1.1 20 OK\r\n\r\n"
    with pytest.raises(MalformedResponse, match=r"^malformed HTTP response b'HTTP/1\.1 20 OK'$"):
        fed(data, [1] * len(data))


def test_headers_have_names_and_the_first_of_a_name_counts() -> None:
    lines = b"Server:  a: b \r\nno header\r\nSERVER: c\r\nX-Server: d\r\n server: e\nlast:\xc4"
    reader = fed(b"HTTP/1.1 204 X: y\r\n" + lines + b"\n\n", [])
    names = ["server", "x-server", "last", "http/1.1 204 x", "no header", "e"]
    assert [reader.header(name) for name in names] == ["a: b", "d", "Ä", None, None, None]


def test_an_end_that_is_the_end_of_the_body() -> None:
    reader = fed(b"HTTP/1.1 200 OK\r\n\r\nall of it", [])
    assert not reader.done
    reader.end()
    assert (reader.done, bytes(reader.body)) == (True, b"all of it")


@pytest.mark.parametrize("data", BAD, ids=range(len(BAD)))
def test_malformed_responses(data: bytes) -> None:
    with pytest.raises(MalformedResponse):
        fed(data, [1, 7])


@pytest.mark.parametrize("name", ["length", "chunks", "interim"])
def test_an_end_too_early(name: str) -> None:
    for cut in range(len(GOOD[name][0]) - 6):
        reader = ResponseReader(KEEP)
        reader.feed(GOOD[name][0][:cut])
        if not reader.done:
            problem = "unexpected EOF" if reader.status else "EOF"
            with pytest.raises(MalformedResponse, match=f"^{problem}$"):
                reader.end()


@given(st.binary(max_size=300), st.lists(st.integers(1, 50), max_size=5))
def test_anything_at_all(data: bytes, sizes: list[int]) -> None:
    try:
        reader = fed(b"HTTP/1.1 200 OK\r\n" + data, sizes)
    except MalformedResponse:
        return
    assert len(reader.body) <= KEEP


def test_a_body_of_too_many_chunks_counts_as_complete() -> None:
    reader = ResponseReader(10 * MAX_CHUNKS)
    reader.feed(CHUNKED + b"1\r\nx\r\n" * MAX_CHUNKS)
    assert not reader.done
    reader.feed(b"1\r\n")
    assert (reader.done, bytes(reader.body)) == (True, b"x" * MAX_CHUNKS)


def test_a_body_that_is_not_needed_is_not_read() -> None:
    reader = ResponseReader(KEEP, lambda head: head.status != 302)
    reader.feed(CHUNKED.replace(b"200 OK", b"302 Found") + b"1\r\nx\r\n")
    assert (reader.done, reader.status, bytes(reader.body)) == (True, 302, b"")


COSTLY = {
    "chunks of one byte": CHUNKED + b"1\r\nx\r\n" * 10_240,
    "long lines of chunks": CHUNKED + b"000000000000001\nx\n" * 10_240,
    "short header lines": b"HTTP/1.1 200 OK\n" + b"a:\n" * 20_000 + b"\nx",
    "interim heads": b"HTTP/1.1 100 Go\n\n" * MAX_INTERIM + GOOD["length"][0],
    "trailers": CHUNKED + b"0\r\n" + b"a: b\r\n" * 10_000,
}


@pytest.mark.parametrize("name", sorted(COSTLY))
def test_the_work_for_an_answer_is_bounded_whatever_it_is_made_of(name: str) -> None:
    """10,240 chunks of one byte took 15 to 31 ms of the event loop (100,000 calls)."""
    reader = ResponseReader(10_240)
    assert calls(lambda: reader.feed(COSTLY[name])) < 6_000
    assert reader.status == 200


def test_memory_is_bounded_while_a_body_never_ends() -> None:
    reader = ResponseReader(KEEP)
    reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(1000):
        reader.feed(b"f\r\n" + b"x" * 15 + b"\r\n")
    assert reader.done
    assert len(reader._buffer) < 100


def head_in_single_bytes(size: int) -> None:
    reader = ResponseReader(KEEP)
    for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * size:
        reader.feed(bytes([byte]))


def body_in_single_bytes(size: int) -> None:
    reader = ResponseReader(size)
    reader.feed(CHUNKED + b"%x\r\n" % size)
    for _ in range(size):
        reader.feed(b"x")
    assert reader.done


@pytest.mark.parametrize("parse", [head_in_single_bytes, body_in_single_bytes])
def test_the_work_is_proportional_to_the_input(parse: Callable[[int], None]) -> None:
    """With quadratic work, a container could stop the agent for seconds."""
    assert is_linear(parse)


# The bounds of a response, to the byte, and which codes are final.


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
