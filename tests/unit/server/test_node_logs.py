"""/logs/: files inside the directory only, and queries that cannot become commands."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qsl

import aiohttp
import pytest

from kubeletpy.base.host.inotify import HeldFd
from kubeletpy.server.node_logs import query as queries
from kubeletpy.server.node_logs.handler import RefusedPath, open_entry
from kubeletpy.server.node_logs.query import (
    BadPattern,
    InvalidQuery,
    LogQuery,
    Range,
    UnreadableQuery,
    check,
    journal_command,
    read_query,
)
from kubeletpy.server.settings import AccessSettings, EndpointSettings
from tests.kit.server import Pki, Running, make_view, serving


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", None),
        ("other=1", None),
        ("query=kubelet", LogQuery(("kubelet",))),
        ("query=a&query=b.service", LogQuery(("a", "b.service"))),
        ("query=/foo.log", LogQuery(file="/foo.log")),
        ("query=sub\\foo.log", LogQuery(file="sub/foo.log")),
        ("query=", UnreadableQuery("query: query cannot be empty")),
        ("query=%20%20", UnreadableQuery("query: query cannot be empty")),
        ("tailLines=5", InvalidQuery("query: cannot specify empty queries")),
        ("query=a&query=/b", InvalidQuery("query: cannot specify a file and service")),
        ("query=/a&query=/b", InvalidQuery("query: cannot specify more than one file")),
        ("query=/a&tailLines=1", InvalidQuery("query: cannot specify file with options")),
        (
            "query=a&query=b&query=c&query=d&query=e",
            InvalidQuery("query: must have at most 4 services"),
        ),
        ("query=" + "a" * 257, InvalidQuery("query: length must be at most 256")),
        ("query=a;reboot", InvalidQuery("query: input contains unsupported characters")),
        ("query=$(reboot)", InvalidQuery("query: input contains unsupported characters")),
        ("query=a%0Ab", InvalidQuery("query: input contains unsupported characters")),
        ("query=a&query=b&query=c&query=d", LogQuery(("a", "b", "c", "d"))),
        ("query=" + "a" * 256, LogQuery(("a" * 256,))),
        ("query=..", InvalidQuery("query: input contains unsupported characters")),
        ("query=a&tailLines=0", LogQuery(("a",), lines=Range(tail=0))),
        ("query=a&tailLines=100000", LogQuery(("a",), lines=Range(tail=100_000))),
        ("query=a&boot=0", LogQuery(("a",), lines=Range(boot=0))),
        ("query=a&pattern=" + "a" * 1024, LogQuery(("a",), lines=Range(pattern="a" * 1024))),
        ("query=a&untilTime=1970-01-01T00:00:01Z", LogQuery(("a",), lines=Range(until=1))),
        ("query=a&sinceTime=1970-01-01T00:00:01Z", LogQuery(("a",), lines=Range(since=1))),
        (
            "query=a&sinceTime=1970-01-01T00:00:01Z&untilTime=1970-01-01T00:00:01Z",
            LogQuery(("a",), lines=Range(since=1, until=1)),
        ),
        ("query=a&tailLines=10", LogQuery(("a",), lines=Range(tail=10))),
        ("query=a&tailLines=x", UnreadableQuery("tailLines: not a number")),
        (
            "query=a&tailLines=-1",
            InvalidQuery("tailLines: must be between 0 and 100000, inclusive"),
        ),
        (
            "query=a&tailLines=100001",
            InvalidQuery("tailLines: must be between 0 and 100000, inclusive"),
        ),
        ("query=a&boot=-1", LogQuery(("a",), lines=Range(boot=-1))),
        ("query=a&boot=1", InvalidQuery("boot: must be less than 1")),
        ("query=a&boot=--all", UnreadableQuery("boot: not a number")),
        ("query=a&pattern=x.*y", LogQuery(("a",), lines=Range(pattern="x.*y"))),
        ("query=a&pattern=(", InvalidQuery("pattern: missing closing ): `(`")),
        (
            "query=a&pattern=a%00b",
            InvalidQuery("pattern: must have at most 1024 characters and no NUL"),
        ),
        (
            "query=a&pattern=" + "a" * 1025,
            InvalidQuery("pattern: must have at most 1024 characters and no NUL"),
        ),
        (
            "query=a&sinceTime=1970-01-01T00:00:01Z&untilTime=1970-01-01T01:00:02%2B01:00",
            LogQuery(("a",), lines=Range(since=1, until=2)),
        ),
        (
            "query=a&sinceTime=1970-01-01T00:00:02Z&untilTime=1970-01-01T00:00:01Z",
            InvalidQuery("untilTime: must be after `sinceTime`"),
        ),
        ("query=a&sinceTime=yesterday", UnreadableQuery("sinceTime: invalid time format")),
        ("query=a&untilTime=2024-01-01", UnreadableQuery("untilTime: invalid time format")),
    ],
)
def test_queries(query: str, expected: LogQuery | ValueError | None) -> None:
    supplied = parse_qsl(query, keep_blank_values=True)
    if isinstance(expected, ValueError):
        with pytest.raises(type(expected)) as raised:
            read_query(supplied)
        assert str(raised.value) == str(expected)
    else:
        assert read_query(supplied) == expected


@pytest.mark.parametrize(
    ("units", "there"),
    [({"a"}, True), ({"a.service"}, True), ({"b", "a.timer"}, False), (set(), False)],
)
def test_which_services_write_to_the_journal(units: set[str], there: bool) -> None:
    assert queries.in_journal("a", frozenset(units)) is there


def test_values_of_a_client_stay_within_their_own_arguments() -> None:
    hostile = LogQuery(("-x", "--file"), lines=Range(1.5, 2, 3, -1, "--output=/etc/passwd"))
    command = journal_command(hostile)
    assert command[0] == "journalctl"
    assert command[1:] == [
        "--utc",
        "--no-pager",
        "--output=short-precise",
        "--since=@1.500000",
        "--until=@2.000000",
        "--lines=3",
        "--unit=-x",
        "--unit=--file",
        "--grep=--output=/etc/passwd",
        "--boot=-1",
    ]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory with regular and hostile entries, and a secret beside it."""
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "var-log"
    (root / "pods/a").mkdir(parents=True)
    (root / "containers").mkdir()
    (root / "pods/a/0.log").write_text("from the pod\n")
    (root / "containers/a.log").symlink_to(root / "pods/a/0.log")
    (root / "inside").symlink_to("pods/a")
    (root / "svc.log").write_text("".join(f"line {i}\n" for i in range(10)))
    (root / "nested").mkdir()
    (root / "nested/nested.log").write_text("nested\n")
    (root / "out").symlink_to("../secret")
    (root / "out2").symlink_to(tmp_path / "secret")
    (root / "out3").symlink_to("/")
    (root / "pods/a/out4").symlink_to("../../../secret")
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe")
    (root / '<b>&"').write_text("x")
    return root


OUTSIDE = [
    *("../secret", "..", "out", "out2", "out3/etc/passwd", "inside/out4", "pods/a/out4"),
    *("loop", "pipe", "pods/../../secret", "svc.log\0"),
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_path_leads_out(logs: Path, path: str) -> None:
    with pytest.raises(RefusedPath):
        open_entry(str(logs), path)


def test_links_that_stay_inside_are_followed(logs: Path) -> None:
    for path in ("containers/a.log", "inside/0.log", "/pods//a/./0.log"):
        entry = open_entry(str(logs), path)
        assert entry.read(0, entry.size) == b"from the pod\n"
        entry.close()
        assert entry.read(0, 5) == b""


@pytest.fixture
async def server(pki: Pki, tmp_path: Path, logs: Path) -> AsyncIterator[Running]:
    settings = EndpointSettings(log_dir=str(logs), system_log_query=True)
    access = AccessSettings(always_allow=True)
    async with serving(make_view(tmp_path), None, pki, access, endpoints=settings) as running:
        yield running


async def get(
    server: Running, path: str, headers: dict[str, str] | None = None
) -> tuple[int, bytes, dict[str, str]]:
    connector = aiohttp.TCPConnector(ssl=server.pki.context(server.pki.client))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(server.url + path, headers=headers, allow_redirects=False) as answer,
    ):
        return answer.status, await answer.read(), dict(answer.headers)


async def test_files_and_directories(server: Running, logs: Path) -> None:
    status, body, headers = await get(server, "/logs/svc.log")
    assert (status, body) == (200, (logs / "svc.log").read_bytes())
    assert headers["X-Content-Type-Options"] == "nosniff"
    status, body, _ = await get(server, "/logs/")
    assert status == 200
    page = body.decode()
    assert '<a href="pods/">pods/</a>' in page
    assert '<a href="%3Cb%3E%26%22">&lt;b&gt;&amp;&quot;</a>' in page
    assert (await get(server, "/logs/%3Cb%3E%26%22"))[1] == b"x"
    status, _, headers = await get(server, "/logs/pods")
    assert (status, headers["Location"]) == (301, "./pods/")
    assert (await get(server, "/logs"))[0] == 301
    assert (await get(server, "/logs/none"))[0] == 404
    assert (await get(server, "/logs/svc.log/x"))[0] in (403, 404)
    assert (await get(server, "/logs/" + "x" * 3000))[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        *("../secret", "%2e%2e/secret", "%2e%2e%2fsecret", "pods/%2e%2e/%2e%2e/secret", "out"),
        *("out2", "out3/etc/passwd", "inside/out4", "pipe", "loop", "svc.log%00"),
        *("//etc/passwd", "%2fetc/passwd", "..%5csecret"),
    ],
)
async def test_no_request_leads_out(server: Running, path: str) -> None:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", server.port, ssl=server.pki.context(server.pki.client)
    )
    writer.write(f"GET /logs/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    assert answer.split()[1] in (b"301", b"400", b"403", b"404")
    assert b"secret" not in answer.partition(b"\r\n\r\n")[2]
    assert b"root:" not in answer


@pytest.mark.parametrize(
    ("requested", "status", "reported", "range_"),
    [
        ("bytes=0-3", 206, b"line", "bytes 0-3/70"),
        ("bytes=63-", 206, b"line 9\n", "bytes 63-69/70"),
        ("bytes=-7", 206, b"line 9\n", "bytes 63-69/70"),
        ("bytes=60-1000", 206, b" 8\nline 9\n", "bytes 60-69/70"),
        ("bytes=70-", 416, b"", "bytes */70"),
        ("nonsense", 200, None, None),
    ],
)
async def test_ranges(
    server: Running, requested: str, status: int, reported: bytes | None, range_: str | None
) -> None:
    found, body, headers = await get(server, "/logs/svc.log", {"Range": requested})
    assert (found, headers.get("Content-Range")) == (status, range_)
    assert reported is None or body == reported


async def test_queries_that_are_answered_from_files(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.server.node_logs.query.UNITS_COMMAND", ("no-such-program",))
    assert (await get(server, "/logs/?query=svc"))[1].startswith(b"line 0\n")
    assert (await get(server, "/logs/?query=nested"))[1] == b"nested\n"
    assert (await get(server, "/logs/?query=svc.log&query=nested"))[1].endswith(b"\nnested\n")
    assert b"log not found for other" in (await get(server, "/logs/?query=other"))[1]
    assert b"error getting log for out" in (await get(server, "/logs/?query=out"))[1]
    assert b"options present" in (await get(server, "/logs/?query=svc&tailLines=1"))[1]
    assert (await get(server, "/logs/?query=/svc.log"))[1].startswith(b"line 0\n")
    assert (await get(server, "/logs/?query=/../secret"))[0] == 403
    assert (await get(server, "/logs/?query=..%5Csecret"))[0] == 403
    assert (await get(server, "/logs/svc.log?query=svc"))[0] == 406
    assert (await get(server, "/logs/?query="))[0] == 400
    assert (await get(server, "/logs/?query=a%3Bb"))[0] == 406


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journalctl that prints its arguments, or endless output."""
    program = tmp_path / "bin/journalctl"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        'case "$*" in *_SYSTEMD_UNIT*) echo loud.service; echo endless.service; exit;; esac\n'
        'case "$*" in *endless*) echo $$ > "$(dirname "$0")/pid"; exec cat /dev/zero;; esac\n'
        'for each; do echo "[$each]"; done; echo "path $PATH" >&2\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program.parent


def runs(pid_file: Path) -> bool:
    return Path(f"/proc/{pid_file.read_text().strip()}").exists()


async def test_queries_that_the_journal_answers(server: Running, journal: Path) -> None:
    status, body, _ = await get(server, "/logs/?query=loud&tailLines=3&pattern=%24%28id%29")
    assert status == 200
    assert b"[--lines=3]\n[--unit=loud]\n[--grep=$(id)]\npath " in body


async def test_output_and_time_are_bounded_and_the_process_ends(
    server: Running, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.server.node_logs.handler.MAX_OUTPUT", 1 << 20)
    _, body, _ = await get(server, "/logs/?query=endless")
    assert len(body) < (1 << 20) + 100
    assert body.endswith(b"too long\n")
    assert not runs(journal / "pid")
    monkeypatch.setattr("kubeletpy.server.node_logs.handler.MAX_OUTPUT", 1 << 40)
    monkeypatch.setattr("kubeletpy.server.node_logs.handler.QUERY_S", 0.3)
    with pytest.raises(aiohttp.ClientError):
        await get(server, "/logs/?query=endless")
    assert not runs(journal / "pid")


async def test_off(pki: Pki, tmp_path: Path, logs: Path) -> None:
    access = AccessSettings(always_allow=True)
    for settings, expected in (
        (EndpointSettings(log_dir=str(logs), system_logs=False), 405),
        (EndpointSettings(log_dir=str(logs)), 200),
    ):
        async with serving(make_view(tmp_path), None, pki, access, endpoints=settings) as running:
            status, body, _ = await get(running, "/logs/?query=svc")
            assert status == expected
            assert b"line" not in body, "a query that is not enabled is not answered"


def test_a_descriptor_is_not_closed_under_a_reader() -> None:
    here, there = os.pipe()
    held = HeldFd(here)
    with held.in_use() as fd:
        held.close()
        os.write(there, b"x")
        assert os.read(fd, 1) == b"x"
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(here)
    os.close(there)
    with held.in_use() as fd:
        assert fd == -1


def test_units() -> None:
    units = frozenset({"kubelet.service", "a.socket"})
    assert [queries.in_journal(name, units) for name in ("kubelet", "kube", "a.socket", "a")] == [
        True,
        False,
        True,
        False,
    ]


# A client's search pattern: expensive ones are refused, and no match takes long.


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "a", "x.*y", "a*?b+?c??", "(a|b)*c", "()*", "^*$", "a{2,3}", "a{2,}", "$(id)"),
        *("[]a]", "[^]a]", "[[:alpha:]_]+", r"[\]]", "{", "a{,3}", "a{x", r"\d+\.\pL", r"\(\*"),
        *("[[:alpha:]]{1000}(x)", r"[[:alpha:]]\d(x)", r"x\E\Qy", "[:(?:]"),
        *("(?i)a", "(?i-s:a)+", "a(?i)*", "(?P<n>a)+", "(?<n>a)", r"\Q(*[", r"\Q(*\E+", "a]}"),
        *("[](]", "[^](]", "[[:]", "[[:a]", "^[a]"),
    ],
)
def test_expressions(pattern: str) -> None:
    check(pattern)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "missing closing ): `(`"),
        ("(a(b)", "missing closing ): `(a(b)`"),
        ("a)(", "unexpected ): `a)(`"),
        ("[a", "missing closing ]: `[a`"),
        ("x[]", "missing closing ]: `[]`"),
        ("x{1000}[:1", "missing closing ]: `[:1`"),
        (r"[[:alpha:]]\d(", r"missing closing ): `[[:alpha:]]\d(`"),
        (r"[\]", r"missing closing ]: `[\]`"),
        (r"\Qa\E(", r"missing closing ): `\Qa\E(`"),
        (r"\Qa\E)", r"unexpected ): `\Qa\E)`"),
        (r"a\Q\E**", "invalid nested repetition operator: `**`"),
        ("[[:alpha:]", "missing closing ]: `[[:alpha:]`"),
        ("[[::]", "missing closing ]: `[[::]`"),
        ("[[:a", "missing closing ]: `[[:a`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a|+", "missing argument to repetition operator: `+`"),
        ("(?i){2}", "missing argument to repetition operator: `{2}`"),
        ("(?:?)", "missing argument to repetition operator: `?`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{2}{3}", "invalid nested repetition operator: `{2}{`"),
        ("a+?+", "invalid nested repetition operator: `+?+`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{3,2}", "invalid repeat count: `{3,2}`"),
        ("a\\", "trailing backslash at end of expression"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?<!a)", "invalid or unsupported Perl syntax: `(?<`"),
        ("(?", "invalid or unsupported Perl syntax: `(?`"),
    ],
)
def test_invalid_patterns_are_refused(pattern: str, why: str) -> None:
    with pytest.raises(BadPattern) as refused:
        check(pattern)
    assert str(refused.value) == why


@pytest.mark.parametrize(
    "pattern",
    [
        "(?i)" + "[\u0001-\U0010ffff]" * 204,
        *("(" * 1024, "[" * 1024, "[:" * 512, "a{1" * 341, r"\Q" * 512, "(?i:" * 256, "a?" * 512),
    ],
)
def test_no_pattern_takes_long(pattern: str) -> None:
    began = time.thread_time()
    try:
        check(pattern)
    except BadPattern as error:
        assert "missing closing" in str(error)
    assert time.thread_time() - began < 0.05
