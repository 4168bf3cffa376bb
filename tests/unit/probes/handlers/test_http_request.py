"""The bytes that an httpGet action sends, for any content of its fields."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy.probes.handlers.http_messages import BadHandlerRequest, redirected, request_for
from kubeletpy.probes.handlers.outcome import (
    HandlerError,
    go_seconds,
    host_port,
    is_address,
    resolve_port,
)

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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (1.9, "1s"),
        (59, "59s"),
        (60, "1m0s"),
        (90, "1m30s"),
        (3599, "59m59s"),
        (3600, "1h0m0s"),
        (3661, "1h1m1s"),
        (90_000, "25h0m0s"),
    ],
)
def test_durations_have_the_format_of_go(seconds: float, text: str) -> None:
    assert go_seconds(seconds) == text


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
