"""Whether something failed because the machine has run out of something, which no caller can fix.

Such a failure is not the program's: its message is enough, a traceback adds nothing,
and at such times there are thousands of them. Pure.
"""

from __future__ import annotations

import errno

_OF_THE_MACHINE = frozenset(
    {
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
    }
)
NO_THREAD = "no thread can be made: too many processes or threads on this machine"


class NoThread(OSError):
    """No thread for a call, and none can be made. ``errno`` is EAGAIN."""

    def __init__(self) -> None:
        super().__init__(errno.EAGAIN, NO_THREAD)


def exhausted(error: BaseException | None) -> OSError | None:
    """The error of the machine that is behind another, or None: it failed for another reason.

    Descriptors, memory, room on a disk, inodes, a disk that can only be read, threads.
    """
    while error is not None:
        if isinstance(error, NoThread) or (
            isinstance(error, OSError) and error.errno in _OF_THE_MACHINE
        ):
            return error
        error = error.__cause__
    return None
