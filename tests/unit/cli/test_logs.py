"""Log lines: text and JSON, verbosity, hostile values, a stuck reader."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import threading
import time

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.cli import logs
from kubeletpy.config import default_settings
from kubeletpy.config.settings import Logging, VModule

DEFAULT = default_settings().logging


def logged(settings: Logging = DEFAULT) -> list[str]:
    """Lines logged for four records."""
    stream = io.StringIO()
    handler = logs.set_up(settings, stream)
    ours = logging.getLogger("kubeletpy.syncloop.loop")
    ours.info("pod %s", "started", extra={"pod": "ns/name", "seconds": 1.5, "why": 'a "b"\nc'})
    ours.debug("detail")
    logging.getLogger("asyncio").info("library")
    logging.getLogger("asyncio").warning("bad\nthing")
    handler.close()
    return stream.getvalue().splitlines()


def test_text_is_klogs() -> None:
    first, second = logged()
    header = re.fullmatch(r"I\d{4} \d\d:\d\d:\d\d\.\d{6} +(\d+) test_logs\.py:\d+\] (.*)", first)
    assert header is not None
    assert header[1] == str(os.getpid())
    assert header[2] == '"pod started" pod="ns/name" seconds=1.5 why="a \\"b\\"\\nc"'
    assert second.startswith("W")
    assert second.endswith('] "bad\\nthing"')


def test_json_is_the_kubelets() -> None:
    before = time.time() * 1000
    first, second = logged(replace(DEFAULT, format="json", verbosity=4))[:2]
    entry = json.loads(first)
    assert before - 1 <= entry.pop("ts") <= time.time() * 1000
    assert re.fullmatch(r"test_logs\.py:\d+", entry.pop("caller"))
    assert entry == {
        "level": "info",
        "logger": "syncloop.loop",
        "msg": "pod started",
        "v": 0,
        "pod": "ns/name",
        "seconds": 1.5,
        "why": 'a "b"\nc',
    }
    assert json.loads(second)["v"] == 4


@pytest.mark.parametrize("which", ["text", "json"])
def test_split_streams(which: str) -> None:
    options = DEFAULT.options
    chosen = replace(options.text, split_stream=True)
    settings = replace(DEFAULT, format=which, options=replace(options, **{which: chosen}))
    errors, rest = io.StringIO(), io.StringIO()
    handler = logs.set_up(settings, errors, out=rest)
    logging.getLogger("kubeletpy").info("one")
    logging.getLogger("kubeletpy").error("two")
    handler.close()
    assert ("one" in rest.getvalue(), "two" in rest.getvalue()) == (True, False)
    assert ("one" in errors.getvalue(), "two" in errors.getvalue()) == (False, True)


@pytest.mark.parametrize(
    ("verbosity", "vmodule", "lines"),
    [
        (0, (), 2),
        (3, (), 2),
        (4, (), 3),
        (8, (), 4),
        (0, (VModule("test_l*", 4),), 3),
        (0, (VModule("other", 4),), 2),
        (0, (VModule("test_logs", 3),), 2),
    ],
)
def test_verbosity(verbosity: int, vmodule: tuple[VModule, ...], lines: int) -> None:
    assert len(logged(replace(DEFAULT, verbosity=verbosity, vmodule=vmodule))) == lines


class StuckStream(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def write(self, text: str) -> int:
        self.free.wait()
        return super().write(text)


def test_a_stuck_reader_does_not_stop_us() -> None:
    stream = StuckStream()
    handler = logs.set_up(DEFAULT, stream)
    for index in range(logs.QUEUE_SIZE + 50):
        logging.getLogger("kubeletpy").info("line %s", index)
    assert 49 <= handler.dropped <= 50
    stream.free.set()
    handler.close()
    assert stream.getvalue().startswith("I")


def test_verbosity_can_change_and_a_stuck_reader_is_reported() -> None:
    stream = StuckStream()
    handler = logs.set_up(DEFAULT, stream)
    ours = logging.getLogger("kubeletpy")
    ours.debug("not yet")
    handler.set_verbosity(4)
    ours.debug("now")
    logging.getLogger("other").debug("never")
    handler.set_verbosity(8)
    logging.getLogger("other").debug("theirs too")
    handler.set_verbosity(0)
    ours.debug("no more")
    assert handler.problem() == ""
    for _ in range(logs.QUEUE_SIZE + 1):
        ours.info("x")
    assert "dropped" in handler.problem()
    stream.free.set()
    handler.close()
    assert "has ended" in handler.problem()
    lines = [line.split("] ", 1)[1] for line in stream.getvalue().splitlines()]
    assert lines[:2] == ['"now"', '"theirs too"']
    assert set(lines[2:]) == {'"x"'}


@pytest.mark.parametrize("form", ["text", "json"])
def test_resource_shortages_have_no_traceback(form: str) -> None:
    stream = io.StringIO()
    handler = logs.set_up(replace(DEFAULT, format=form), stream)
    try:
        try:
            raise OSError(errno.EMFILE, "Too many open files", "/etc/hosts")
        except OSError as error:
            raise ValueError("no container") from error
    except ValueError:
        logging.getLogger("kubeletpy").exception("failed")
    handler.close()
    line = stream.getvalue()
    why = "[Errno 24] Too many open files: '/etc/hosts'"
    if form == "text":
        assert line.endswith(f'] "failed" why="{why}"\n')
        assert line.count("\n") == 1
    else:
        entry = json.loads(line)
        assert (entry["why"], "exception" in entry) == (why, False)


def test_exceptions_are_logged_completely() -> None:
    stream = io.StringIO()
    handler = logs.set_up(DEFAULT, stream)
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("kubeletpy").exception("failed", extra={"key": object})
    handler.close()
    assert "ValueError: why" in stream.getvalue()


def logged_to_a_pipe(monkeypatch: pytest.MonkeyPatch, journal: str) -> list[str]:
    """Lines of records on stderr, a pipe that JOURNAL_STREAM names by ``journal``."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as reader:
        with os.fdopen(writing, "w") as writer:
            found = os.fstat(writing)
            monkeypatch.setenv("JOURNAL_STREAM", journal.format(f"{found.st_dev}:{found.st_ino}"))
            handler = logs.set_up(replace(DEFAULT, verbosity=4), writer)
            ours = logging.getLogger("kubeletpy.syncloop.loop")
            ours.debug("detail")
            ours.info("started")
            ours.warning("slow")
            try:
                raise ValueError("broken")
            except ValueError:
                ours.exception("failed")
            handler.close()
        return reader.read().splitlines()


def test_the_journal_gets_priorities_also_of_a_tracebacks_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = logged_to_a_pipe(monkeypatch, "{}")
    assert [line[:4] for line in lines[:4]] == ["<7>I", "<6>I", "<4>W", "<3>E"]
    assert len(lines) > 5
    assert {line[:3] for line in lines[3:]} == {"<3>"}


@pytest.mark.parametrize("journal", ["", "9{}", "1:2"])
def test_other_streams_get_no_priorities(monkeypatch: pytest.MonkeyPatch, journal: str) -> None:
    lines = logged_to_a_pipe(monkeypatch, journal)
    assert [line[:1] for line in lines[:4]] == ["I", "I", "W", "E"]
