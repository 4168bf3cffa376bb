"""Errors that mean the machine has run out of a resource."""

from __future__ import annotations

import errno
import os

import pytest

from kubeletpy.base.host.errors import NoThread, exhausted


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number), "/some/path")


def _caused(outer: Exception, inner: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


def _meanwhile(outer: Exception, inner: Exception) -> Exception:
    outer.__context__ = inner
    return outer


@pytest.mark.parametrize(
    "number",
    [
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
    ],
)
def test_the_machine_has_run_out(number: int) -> None:
    error = _error(number)
    assert exhausted(error) is error
    assert exhausted(_caused(ValueError("outer"), _caused(KeyError("x"), error))) is error


def test_no_thread() -> None:
    error = NoThread()
    assert exhausted(error) is error
    assert (error.errno, error.strerror) == (
        errno.EAGAIN,
        "no thread can be made: too many processes or threads on this machine",
    )


@pytest.mark.parametrize(
    "error",
    [
        None,
        ValueError("why"),
        _error(errno.ENOENT),
        _error(errno.EACCES),
        _error(errno.EAGAIN),  # a non-blocking socket reports this: a bug of the program
        _caused(ValueError("outer"), KeyError("inner")),
        _meanwhile(ValueError("outer"), _error(errno.EMFILE)),
    ],
    ids=repr,
)
def test_another_reason(error: Exception | None) -> None:
    assert exhausted(error) is None
