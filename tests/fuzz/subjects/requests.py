"""Queries of requests to the node's port."""

from __future__ import annotations

from urllib.parse import parse_qsl

from kubeletpy.server.node_logs.query import (
    BadPattern,
    InvalidQuery,
    UnreadableQuery,
    check,
    journal_command,
    read_query,
)
from kubeletpy.server.streaming.options import (
    BadStreamRequest,
    offered_protocols,
    read_ports,
    read_streams,
)
from tests.fuzz.target import target, text

NODE_LOGS = b"query=kubelet&sinceTime=2024-01-02T03:04:05Z&tailLines=5&boot=-1&pattern=a.*b"


@target(
    UnreadableQuery,
    InvalidQuery,
    seeds=(NODE_LOGS, b"query=/a/b"),
    parts=(b"query=", b"&", b"%2f", b"..", b"boot=", b"pattern=", b"untilTime="),
)
def node_log_query(data: bytes) -> None:
    """A query of the node's logs; no argument of a command becomes an option."""
    found = read_query(parse_qsl(text(data), keep_blank_values=True))
    if found is not None:
        assert all(each.startswith("--") for each in journal_command(found)[1:])


@target(
    BadPattern,
    seeds=(b"(?i)a[b-c]{2,3}?|\\pL", b"[[:alpha:]]"),
    parts=(b"(?", b"{1,1000}", b"[^", b"\\x{", b"[[:", b"?P<a>"),
)
def pattern(data: bytes) -> None:
    """A regular expression of RE2."""
    check(text(data))


@target(BadStreamRequest, seeds=(b"input=1&output=1&tty=1&port=80,81",), parts=(b"port=", b"&"))
def stream_query(data: bytes) -> None:
    """The streams or ports that a client requests."""
    query = parse_qsl(text(data), keep_blank_values=True)
    offered_protocols(text(data))
    if len(data) % 2:
        read_streams(query)
    assert all(0 < port < 1 << 16 for port in read_ports(query, websocket=bool(len(data) % 3)))
