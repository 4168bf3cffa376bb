"""The termination message of a container: from the file it may write, or the end of its log.

Both files are written by the container and hostile, and whoever mounts their directories from the
host can move them. Only the file that the agent made for the container and a log below podLogsDir
are read, never a volume that is mounted at the path of the message. It must be a regular file;
links are not followed, reading never blocks, and only the last bytes are read. Must never raise for
what is in them. Source: docs/reference/behaviour.md, e5.
"""

from __future__ import annotations

import json
import os

from kubeletpy.base.structs import Struct
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.names import (
    TERMINATION_MESSAGE_PATH,
    TERMINATION_MESSAGE_POLICY,
    read_labels,
    termination_file,
)

MAX_FILE_BYTES = 4096
MAX_LOG_BYTES = 2048
MAX_LOG_LINES = 80
LOG_WINDOW = 256 * 1024
"""Bytes at a log's end that are searched for those lines. A line of a CRI log is at most 16 KiB,
and only the last 2048 bytes of text count."""
FALLBACK_TO_LOGS = "FallbackToLogsOnError"


class MessageRoots(Struct, frozen=True):
    """Where the agent's own files are: the kubelet's root directory, and podLogsDir."""

    root_dir: str
    pod_logs: str


def has_message_source(status: cri.ContainerStatus) -> bool:
    """Whether there may be anything to read: the container has ended and has a file or a log."""
    return status.state == cri.CONTAINER_EXITED and (
        bool(status.annotations.get(TERMINATION_MESSAGE_PATH))
        or status.annotations.get(TERMINATION_MESSAGE_POLICY) == FALLBACK_TO_LOGS
    )


def may_end_in_log(status: cri.ContainerStatus) -> bool:
    """Whether the end of the log may be the message: the runtime completes a log after the exit."""
    return (
        status.annotations.get(TERMINATION_MESSAGE_POLICY) == FALLBACK_TO_LOGS
        and status.exit_code != 0
        and status.reason != "ContainerCannotRun"
    )


def read_termination_message(status: cri.ContainerStatus, roots: MessageRoots) -> str:
    """The message of an ended container, "" when it left none. Blocks on the files."""
    message = ""
    file = _own_file(status, roots) if status.annotations.get(TERMINATION_MESSAGE_PATH) else ""
    if file:
        try:
            message = read_tail(roots.root_dir, file, MAX_FILE_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            message = ""
        except OSError as error:
            return f"Error on reading termination log {file}: {_why(error)}"
    if message or not may_end_in_log(status) or not status.log_path:
        return message
    try:
        tail = read_tail(roots.pod_logs, status.log_path, LOG_WINDOW, container_id=status.id)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"Error on reading termination message from logs: {_why(error)}"
    return last_log_text(tail)


def read_tail(root: str, path: str, limit: int, *, container_id: str = "") -> bytes:
    """The last ``limit`` bytes of a regular file below ``root``.

    With a ``container_id`` the runtime's link to that container's log is followed.

    Raises:
        OSError: it cannot be opened, is somewhere else, or is another link or not a regular file.
    """
    from kubeletpy.base.host.files import open_container_log

    descriptor, _ = open_container_log(root, path, container_id)
    try:
        return os.pread(descriptor, limit, max(0, os.fstat(descriptor).st_size - limit))
    finally:
        os.close(descriptor)


def _own_file(status: cri.ContainerStatus, roots: MessageRoots) -> str:
    """The file that the agent made for the container's message; empty: none is mounted."""
    owner = read_labels(status.labels)
    for mount in status.mounts:
        file = termination_file(
            roots.root_dir, owner.pod_uid, owner.container_name, mount.host_path
        )
        if file:
            return file
    return ""


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def last_log_text(tail: bytes) -> str:
    """The text of the last records at the end of a log file, in CRI or JSON format.

    At most the last 80 records and 2048 bytes; records that cannot be read (the first may be
    truncated) are left out.
    """
    texts: list[bytes] = []
    for line in reversed(tail.split(b"\n")):
        if len(texts) == MAX_LOG_LINES:
            break
        text = _record_text(line)
        if text is not None:
            texts.append(text)
    return b"".join(reversed(texts))[-MAX_LOG_BYTES:].decode("utf-8", "replace")


def _record_text(line: bytes) -> bytes | None:
    if line.startswith(b"{"):
        try:
            log = json.loads(line)
        except (ValueError, RecursionError):
            return None
        text = log.get("log") if isinstance(log, dict) else None
        return text.encode("utf-8", "replace") if isinstance(text, str) else None
    fields = line.split(b" ", 3)
    if len(fields) != 4 or fields[1] not in (b"stdout", b"stderr"):
        return None
    partial = fields[2].split(b":", 1)[0] == b"P"
    return fields[3] if partial else fields[3] + b"\n"
