"""The machine's SELinux policy for container files. Reads files only; blocking, once."""

from __future__ import annotations

import re
from pathlib import Path

DEFAULT_LABEL = "system_u:object_r:container_file_t:s0"
"""Default of policies that ship without their own contexts file."""
_FILE = re.compile(r'^\s*file\s*=\s*"?([^"\s]+)"?\s*$', re.MULTILINE)
_TYPE = re.compile(r"^\s*SELINUXTYPE\s*=\s*([\w.-]+)\s*$", re.MULTILINE)


def file_label(root: Path = Path("/")) -> str:
    """The default label of container files; empty: the kernel labels nothing."""
    if not (root / "sys/fs/selinux/enforce").exists():
        return ""
    found = _TYPE.search(_text(root / "etc/selinux/config"))
    policy = found[1] if found else "targeted"
    contexts = _text(root / "etc/selinux" / policy / "contexts/lxc_contexts")
    label = _FILE.search(contexts)
    return label[1] if label is not None and label[1].count(":") >= 3 else DEFAULT_LABEL


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
