"""The agent's own process: its OOM score, and how many files it may open.

Source: docs/reference/behaviour-resources.md, rj: kubelet process; docs/reference/config.csv:
oomScoreAdj, maxOpenFiles. Its child processes inherit both.
"""

from __future__ import annotations

import resource
from pathlib import Path

from kubeletpy.base.text import number

CHECK_EVERY_S = 300.0
"""How often the score is checked again."""


def set_oom_score(adjust: int, process: Path) -> str:
    """Set oom_score_adj of a process (its directory in /proc); why that failed, or "".

    Without CAP_SYS_RESOURCE a score can't be lowered.
    """
    file = process / "oom_score_adj"
    try:
        if _signed(file.read_text(errors="replace")) != adjust:
            file.write_text(str(adjust))
    except OSError as error:
        return f"oomScoreAdj {adjust}: {error.strerror or error}"
    return ""


def set_open_files(limit: int) -> str:
    """Let this process open this many files (soft and hard limit); why that failed, or "".

    Where the hard limit can't be raised it is used unchanged. 0 changes nothing.
    """
    if not limit:
        return ""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if (soft, hard) == (limit, limit):
        return ""
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    except (OSError, ValueError) as error:
        reachable = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
        except (OSError, ValueError):
            reachable = soft
        return f"maxOpenFiles {limit}: {error}; the limit is {reachable}"
    return ""


def _signed(text: str) -> int | None:
    text = text.strip()
    size = number(text.removeprefix("-"))
    return size if size is None or not text.startswith("-") else -size
