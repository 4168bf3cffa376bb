"""Whether a process runs in another user namespace than the first one, by the kernel's
text. Pure.

Source: docs/reference/behaviour.md, o1.
"""

from __future__ import annotations

from kubeletpy.base.host.kernel_text import lines

_ALL_IDS = [0, 0, 4294967295]


def in_user_namespace(uid_map: str | None) -> bool:
    """Whether a ``/proc/self/uid_map`` is that of a user namespace other than the initial one.

    Args:
        uid_map: the text of the file; None: the kernel has no such file. It is empty as long as a
            new namespace has no ids. Only its first line counts; one that is not three numbers
            belongs to no namespace.
    """
    if uid_map is None:
        return False
    first = next(iter(lines(uid_map)), "")
    if not first:
        return True
    words = first.split()[:3]
    if len(words) < len(_ALL_IDS) or not all(word.isascii() and word.isdigit() for word in words):
        return False
    return [int(word[:20]) for word in words] != _ALL_IDS
