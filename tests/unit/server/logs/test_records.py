"""Log files rendered as text: a table of cases."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.host.files import NotBelow
from kubeletpy.server.logs.follow import BLOCK, LogFile, TailSearch
from kubeletpy.server.logs.records import (
    MAX_LINE,
    Formatter,
    InvalidOptions,
    LogOptions,
    NoLog,
    UnreadableOptions,
    container_id,
    plan_rotation,
    read_options,
    rotated_name,
)

T = b"2026-01-02T03:04:05.%s "
CRI = (
    b"2026-01-02T03:04:05.1Z stdout F one\n"
    b"2026-01-02T03:04:05.2Z stderr P tw\n"
    b"2026-01-02T03:04:05.25+00:00 stderr F o\n"
    b"garbage\n"
    b"2026-01-02T03:04:05.3Z stdout F:x three four\n"
    b"2026-01-02T03:04:05.4Z stdout F \n"
    b"2026-01-02T03:04:05.5Z stdin F no\n"
    b"2026-01-02T03:04:05Z stdout F last\n"
)


def show(text: bytes, piece: int = 1 << 20, **options: object) -> bytes:
    made = Formatter(**options)  # type: ignore[arg-type]
    reported = b"".join(made.feed(text[at : at + piece]) for at in range(0, len(text), piece))
    return reported + made.finish()


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_cri(piece: int) -> None:
    assert show(CRI, piece) == b"one\ntwo\nthree four\n\nlast\n"
    assert show(CRI[:-1], piece) == b"one\ntwo\nthree four\n\nlast\n", "no newline at the end"
    stamped = show(CRI, piece, timestamps=True).split(b"\n")
    assert stamped[0] == b"2026-01-02T03:04:05.100000000Z one"
    assert stamped[1] == b"2026-01-02T03:04:05.200000000Z two", "one time for joined parts"
    assert stamped[4] == b"2026-01-02T03:04:05.000000000Z last"
    since = parse_time("2026-01-02T03:04:05.3Z")
    assert show(CRI, piece, since=since) == b"three four\n\n"
    assert show(CRI, piece, limit=6) == b"one\ntw"
    assert show(CRI, piece, limit=0) == show(CRI, piece, records=0) == b""
    assert show(CRI, piece, records=2) == b"one\ntw"


WHOLE = (
    b"2026-01-02T03:04:05.1Z stdout F first\n"
    b"2026-01-02T03:04:05.1Z stdout F\n"
    b"2026-01-02T03:04:05.1Z stdout F \n"
    b"\n"
    b"2026-01-02T03:04:05.1Z stdout F:a:b  two spaces\n"
    b"2026-01-02T03:04:05.1Z stdout FF no\n"
    b"2026-01-02T03:04:05.1Z stderr F \xff\x00 2026-01-02T03:04:05.1Z stdout F in\n"
    b" stdout F no time\n"
    b"2026-01-02T03:04:05.1Z  stdout F no\n"
    b"unfinished"
)


@pytest.mark.parametrize("piece", [1, 5, 40, 1000])
def test_the_quick_way_shows_the_same(piece: int) -> None:
    quick = show(WHOLE, piece)
    assert quick == show(WHOLE, piece, records=1000)
    assert quick == (
        b"first\n\n\n two spaces\n\xff\x00 2026-01-02T03:04:05.1Z stdout F in\nno time\n"
    )
    assert show(WHOLE, piece, limit=8) == b"first\n\n\n"
    mixed = WHOLE[:-10] + CRI + WHOLE
    assert show(mixed, piece) == show(mixed, piece, records=1000)


@pytest.mark.parametrize("piece", [1, 7, 62, 1000])
def test_json(piece: int) -> None:
    text = b'{"log":"a\\n","stream":"stdout","time":"2026-01-02T03:04:05Z"}\n{"log":1}\nx\n'
    assert show(text, piece) == b"a\n"
    assert show(text, piece, timestamps=True) == b"2026-01-02T03:04:05.000000000Z a\n"
    assert show(text + CRI + WHOLE, piece) == b"a\n", "the first line decides"
    assert show(CRI + text, piece) == show(CRI)


def test_the_first_line_decides_for_the_whole_lines_that_follow() -> None:
    made = Formatter()
    assert made.feed(b'{"log":"a\\n","time":"2026-01-02T03:04:05Z"}\n') == b"a\n"
    assert made.feed(b"2026-01-02T03:04:05.1Z stdout F b\n") == b""


def test_an_empty_part_is_followed_by_a_new_time() -> None:
    first, second, third = (b"2026-01-02T03:04:0%d.000000000Z" % at for at in (1, 2, 3))
    text = first + b" stdout P \n" + second + b" stdout P x\n" + third + b" stdout F y\n"
    assert show(text, timestamps=True) == first + b" " + second + b" xy\n"


def test_lines_without_a_time_are_left_out_where_the_time_counts() -> None:
    text = b"today stdout F a\n2026-01-02T03:04:05.0Z stdout F b\nnow stdout F c\n"
    assert show(text) == b"a\nb\nc\n"
    assert show(text, since=0.0) == b"b\n"
    assert show(text, timestamps=True) == b"2026-01-02T03:04:05.000000000Z b\n"


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_one_stream(piece: int) -> None:
    assert show(CRI, piece, stream="stdout") == b"one\nthree four\n\nlast\n"
    assert show(CRI, piece, stream="stderr") == b"two\n"
    text = b"".join(
        b'{"log":"%d\\n","stream":"%s","time":"2026-01-02T03:04:05Z"}\n' % pair
        for pair in [(1, b"stdout"), (2, b"stderr"), (3, b"stdout")]
    )
    assert show(text, piece, stream="stdout") == b"1\n3\n"
    assert show(CRI, piece, stream="stderr", timestamps=True).count(b"Z") == 1


def test_lines_before_the_requested_time_are_skipped() -> None:
    line = b"2026-01-02T03:%02d:00Z stdout F minute %d\n"
    text = b"".join(line % (minute, minute) for minute in (0, 1, 2, 50, 10, 51, 52))
    since = parse_time("2026-01-02T03:50:00Z")
    for piece in (1, 40, 90, 1000):
        assert show(text, piece, since=since) == b"minute 50\nminute 51\nminute 52\n"
        assert show(text, piece, since=since, records=2) == b"minute 50\nminute 51\n"


@pytest.mark.parametrize(
    ("last", "reported"),
    [
        (b"03:50:00", b"new\n" * 3),
        (b"03:49:01", b"new\n" * 2),
        (b"03:49:00", b"new\n" * 2),
        (b"03:48:59", b"new\n"),
    ],
)
def test_a_clock_set_back_by_a_minute_hides_nothing(last: bytes, reported: bytes) -> None:
    made = Formatter(since=parse_time("2026-01-02T03:50:00Z"))
    new = b"2026-01-02T03:50:00Z stdout F new\n"
    block = new + b"2026-01-02T%s.0Z stdout F new\n" % last
    assert made.feed(new) + made.feed(block) == reported


@pytest.mark.parametrize(
    ("options", "done"),
    [
        ({"limit": 0}, [True, True]),
        ({"records": 0}, [True, True]),
        ({"limit": 3}, [False, True]),
        ({"limit": 4}, [False, True]),
        ({"limit": 5}, [False, False]),
        ({"records": 1}, [False, True]),
        ({"records": 2}, [False, False]),
        ({"limit": 5, "records": 1}, [False, True]),
        ({}, [False, False]),
    ],
)
def test_a_formatter_is_done_at_its_limit(options: Any, done: list[bool]) -> None:
    made = Formatter(**options)
    before = made.done
    made.feed(CRI[: CRI.index(b"\n") + 1])
    assert [before, made.done] == done


@pytest.mark.parametrize("odd", [b"0000-01-02T03:04:05Z", b"2024-13-02T03:04:05Z"])
def test_an_invalid_time_does_not_affect_other_lines(odd: bytes) -> None:
    sound = b"2024-01-02T03:04:05Z stdout F sound\n"
    log = sound + odd + b" stdout F odd\n"
    assert Formatter(since=1000.0).feed(log + sound + log) == b"sound\n" * 3
    assert Formatter(timestamps=True).feed(log).count(b"\n") == 2


def test_a_large_log_that_is_long_ago_costs_little() -> None:
    made = Formatter(since=parse_time("2026-01-03T03:04:05Z"))
    made.feed(CRI)
    block = b"2026-01-02T03:04:05Z stdout F x\n" * 8000
    began = time.process_time()
    for _ in range(400):
        assert made.feed(block) == b""
    assert time.process_time() - began < 1, "100 MB, by the line about 5 s"


def test_a_line_without_end_costs_no_memory() -> None:
    made = Formatter()
    for _ in range(64):
        made.feed(b"x" * (MAX_LINE // 4))
        assert len(made._rest) <= MAX_LINE
    assert made.feed(b"\n2026-01-02T03:04:05Z stdout F ok\n") == b"ok\n"


@pytest.mark.parametrize(("beyond", "reported"), [(0, True), (1, False)])
def test_the_longest_line(beyond: int, reported: bool) -> None:
    head = b"2026-01-02T03:04:05Z stdout F "
    text = b"x" * (MAX_LINE - len(head) + beyond)
    made = Formatter()
    assert made.feed(head + text) == b""
    assert made.feed(b"\n") == (text + b"\n" if reported else b"")


def test_no_more_records_than_requested_in_complete_lines() -> None:
    line = b"2026-01-02T03:04:05Z stdout F x\n"
    made = Formatter(records=3)
    assert made.feed(line) + made.feed(line * 3) + made.feed(line) == b"x\n" * 3


@pytest.mark.parametrize("size", [0, 1, 10, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
@pytest.mark.parametrize("desired", [0, 1, 3, 10_000_000])
def test_the_tail(tmp_path: Path, size: int, desired: int) -> None:
    line = b"y" * 99 + b"\n"
    text = (line * (size // 100 + 1))[:size] if size else b""
    (tmp_path / "log").write_bytes(text)
    fd = os.open(tmp_path / "log", os.O_RDONLY)
    try:
        search = TailSearch(desired)
        while not search.search(fd):
            pass
        offset = search.offset
    finally:
        os.close(fd)
    assert text[offset:].count(b"\n") == min(desired, text.count(b"\n"))
    assert offset == 0 or text[offset - 1 : offset] == b"\n"


def test_no_path_leads_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "pod").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (root / "pod" / "link.log").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path)
    os.mkfifo(root / "pod" / "pipe.log")
    for path in ("pod/link.log", "folder/secret", "pod/pipe.log", "../secret", "pod/../../secret"):
        with pytest.raises(OSError, match=r"root|loop|symbolic|Not a directory|regular"):
            LogFile(str(root), f"{root}/{path}")
    for path in (str(tmp_path / "secret"), "/etc/passwd", "", str(root)):
        with pytest.raises(NotBelow):
            LogFile(str(root), path)


def test_a_closed_file_is_closed_and_reads_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("x")
    log = LogFile(str(tmp_path), str(tmp_path / "x.log"))
    with log._held.in_use() as fd:
        pass
    log.close()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)
    assert log.read() == b""


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, LogOptions()),
        ({"follow": "true", "previous": "1"}, LogOptions(follow=True, previous=True)),
        ({"tailLines": "0"}, LogOptions(tail=0)),
        ({"tail": "5"}, LogOptions(tail=5)),
        ({"tail": "all", "tailLines": "3"}, LogOptions()),
        ({"sinceSeconds": "10"}, LogOptions(since=90.0)),
        ({"sinceTime": "1970-01-01T00:00:05Z"}, LogOptions(since=5.0)),
        ({"limitBytes": "7", "timestamps": "True"}, LogOptions(limit=7, timestamps=True)),
        ({"stream": "All"}, LogOptions()),
        ({"follow": "maybe"}, UnreadableOptions),
        ({"tailLines": "x"}, UnreadableOptions),
        ({"tailLines": "9" * 18}, LogOptions(tail=10**18 - 1)),
        ({"tailLines": "9" * 19}, UnreadableOptions),
        ({"tailLines": "٣"}, UnreadableOptions),
        ({"sinceSeconds": "1", "limitBytes": "1"}, LogOptions(since=99.0, limit=1)),
        ({"sinceTime": "yesterday"}, UnreadableOptions),
        ({"stream": "Stdout"}, UnreadableOptions),
        ({"stream": "Stdin"}, InvalidOptions),
        ({"tailLines": "-1"}, InvalidOptions),
        ({"limitBytes": "0"}, InvalidOptions),
        ({"sinceSeconds": "0"}, InvalidOptions),
        ({"sinceSeconds": "1", "sinceTime": "1970-01-01T00:00:05Z"}, InvalidOptions),
    ],
)
def test_options(query: dict[str, str], expected: object) -> None:
    _reads(query, expected)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, LogOptions()),
        ({"stream": "All", "tailLines": "1"}, LogOptions(tail=1)),
        ({"stream": "Stdout"}, LogOptions(stream="stdout")),
        ({"stream": "Stderr", "tail": "all"}, LogOptions(stream="stderr")),
        ({"stream": "Stderr", "tailLines": "1"}, InvalidOptions),
        ({"stream": "stdout"}, InvalidOptions),
    ],
)
def test_options_of_split_streams(query: dict[str, str], expected: object) -> None:
    _reads(query, expected, split_streams=True)


def _reads(query: dict[str, str], expected: object, **more: bool) -> None:
    if isinstance(expected, type):
        with pytest.raises(expected):
            read_options(query, 100.0, **more)
    else:
        assert read_options(query, 100.0, **more) == expected


ENDED = {"terminated": {"containerID": "containerd://old"}}


@pytest.mark.parametrize(
    ("state", "last", "previous", "expected"),
    [
        ({"running": {}}, {}, False, "now"),
        ({"running": {}}, ENDED, False, "now"),
        ({"terminated": {"containerID": "bare"}}, {}, False, "bare"),
        ({"running": {}}, ENDED, True, "old"),
        ({"running": {}}, {}, True, "previous terminated container"),
        ({"terminated": {"containerID": "c://t"}}, ENDED, False, "t"),
        ({"terminated": {}}, ENDED, False, "old"),
        ({"terminated": {}}, {}, False, "is terminated"),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, ENDED, False, "old"),
        ({"waiting": {"reason": "X"}}, {"terminated": {}}, False, "is terminated"),
        ({"waiting": {"reason": "ErrImagePull"}}, {}, False, "image can't be pulled"),
        ({"waiting": {"reason": "ImagePullBackOff"}}, {}, False, "trying and failing to pull"),
        ({"waiting": {"reason": "ContainerCreating"}}, {}, False, "start: ContainerCreating"),
        ({}, {}, False, "no logs yet"),
    ],
)
def test_which_container(state: object, last: object, previous: bool, expected: str) -> None:
    entry = {"name": "c", "containerID": "containerd://now", "state": state, "lastState": last}
    for field in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        status = cast(Any, {field: [{"name": "other", "state": {"running": {}}}, entry]})
        if " " in expected:
            with pytest.raises(NoLog, match=expected):
                container_id("p", "c", status, previous=previous)
        else:
            assert container_id("p", "c", status, previous=previous) == expected
    with pytest.raises(NoLog, match="not available"):
        container_id("p", "c", {}, previous=previous)


def test_the_plan_of_a_rotation() -> None:
    names = ["0.log", "0.log.1.gz", "0.log.2.gz", "0.log.3", "0.log.2", "0.log.9.tmp", "10.log.1"]
    plan = plan_rotation("0.log", names, 4)
    assert plan.remove == ("0.log.9.tmp", "0.log.2", "0.log.1.gz")
    assert plan.compress == ("0.log.3",)
    assert plan_rotation("0.log", names, 2).compress == ()
    assert plan_rotation("0.log", ["0.log"], 5).remove == ()
    assert rotated_name("0.log", 0) == "0.log.19700101-000000"
