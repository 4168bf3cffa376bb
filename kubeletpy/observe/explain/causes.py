"""The cause texts of runtimes and of this agent, cut down to the informative part. Pure.

A runtime wraps a cause in the steps that led to it, and each step names the image or the container
again. The reader needs only the end. External text is put on one line afterwards.
"""

from __future__ import annotations

import re

from kubeletpy.observe.explain.texts import one_line

LONGEST = 800
"""Maximum characters of a cause. A longer one keeps its end."""
READ = 16 * 1024
"""Characters that are read."""
_QUOTED = r'"(?:[^"\\]|\\.){0,1000}"'
_WRAPPERS = re.compile(
    "|".join(
        (
            r"rpc error: code = \w+ desc = ",
            r"failed to StartContainer for \S+ with \w+: ",
            rf"Back-off pulling image {_QUOTED}: ",
            r"ErrImagePull: ",
            rf"failed to pull and unpack image {_QUOTED}: ",
            rf"failed to resolve (?:image|reference {_QUOTED}): ",
            r"failed to do request: ",
            r"failed to create (?:containerd task|shim task|task for container): ",
            r"Error response from daemon: ",
            r"container create failed: ",
            r"image pull failed for \S+ because the registry is unavailable: ",
            r"unable to pull image(?: or OCI artifact: pull image err)?: ",
            r"initializing source docker://\S+: ",
            r"OCI runtime create failed: ",
            r"runc create failed: ",
            r"unable to start container process: ",
            r"error during container init: ",
            r"Unable to attach or mount volumes: unmounted volumes=\[[^\]]{0,1000}\]: ",
            r"Pod was rejected: ",
            r"failed to CreatePodSandbox for \S+ with (?:Create|Config)PodSandboxError: ",
            rf"Failed to (?:create sandbox|generate sandbox config) for pod {_QUOTED}: ",
            r"Predicate \w+ failed: ",
            r"Exec lifecycle hook \(\[.{0,1000}?\]\) for Container .{0,400}? failed - error: ",
        )
    )
)
_LOG_LINE = re.compile(rf'time="[^"]{{0,64}}" level=\w{{1,16}} msg=({_QUOTED})')
"""The message in a log line of runc; CRI-O puts such lines into its errors."""
_ESCAPED = re.compile(r'\\(["\\])')
_BACK_OFF = re.compile(r"back-off (\S+) restarting failed container=\S+ pod=\S+?\([0-9a-f-]+\)")
_WHERE = re.compile(r' \(pod: "[^"]{0,400}", container: [^)\s]{1,64}\)')
_POD_UID = re.compile(r"\(([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\)")
_LONG_ID = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


def cause(text: str) -> str:
    """The cause without wrappers, uids and long ids; of one that is too long still, its end."""
    shown = _LOG_LINE.sub(lambda line: _ESCAPED.sub(r"\1", line[1][1:-1]), text[-READ:])
    shown = _WRAPPERS.sub("", shown)
    shown = _BACK_OFF.sub(r"back-off \1", shown)
    shown = _WHERE.sub("", shown)
    shown = _LONG_ID.sub(r"\1", _POD_UID.sub("", shown))
    shown = one_line(shown, READ)
    return shown if len(shown) <= LONGEST else "…" + shown[1 - LONGEST :]
