"""Reads the host's resolver configuration from its resolv.conf.

A module of its own because it does I/O: :mod:`..config.sandbox_config`, which parses it, is pure.
"""

from __future__ import annotations

import os
import stat

from kubeletpy.runtime_manager.config.sandbox_config import (
    ResolvConfError,
    ResolverConfig,
    parse_resolv_conf,
)

MAX_BYTES = 10 << 20
"""docs/reference/constants.csv: dns, resolv.conf max."""
_NOTHING = os.makedev(1, 3)
"""/dev/null, which operators configure to have no name servers."""


def host_dns(path: str) -> ResolverConfig | None:
    """The host's resolver configuration; None when the settings name no file.

    Raises:
        ResolvConfError: the file cannot be used; the message names it.
    """
    if not path:
        return None
    try:
        return parse_resolv_conf(_read_file(path))
    except (OSError, ResolvConfError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ResolvConfError(
            f"resolvConf {path} cannot be used: {why}; correct the file, or resolvConf in the "
            "node's configuration"
        ) from error


def _read_file(path: str) -> str:
    """Raises OSError, ResolvConfError. Never waits for a writer, as a pipe has it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) and found.st_rdev != _NOTHING:
            raise ResolvConfError("it is not a regular file")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ResolvConfError(f"it is larger than {MAX_BYTES >> 20} MiB")
    return content.decode(errors="replace")
