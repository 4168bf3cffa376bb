"""Causes of failures as data, above all those of this machine: it lacks something. Pure.

No caller can fix a failure of the machine. Its message is enough: a traceback adds nothing, and at
such times there are thousands of them. Code that must not load the D-Bus library finds its error
here, too.
"""

from __future__ import annotations

import errno
from enum import StrEnum

from kubeletpy.base.structs import Struct

_EXHAUSTED = frozenset(
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


class FaultKind(StrEnum):
    """The kinds of failures for which the machine is the reason."""

    SPACE = "space"
    INODES = "inodes"
    QUOTA = "quota"
    READ_ONLY = "read-only"
    IO = "input/output"
    DENIED = "permission"
    DESCRIPTORS = "file descriptors"
    MEMORY = "memory"
    THREADS = "threads"


class MachineFault(Struct, frozen=True):
    """A failure of a call for which the machine is the reason.

    Attributes:
        path: the file or directory; "" where the call has none.
        mount_point: the file system; "" unless the fault is one of a disk.
        size: bytes of the file system, and ``used_percent`` of them; 0: unknown.
        inodes: of the file system, and ``used_inodes_percent`` of them; 0: it has no limit.
    """

    kind: FaultKind
    path: str = ""
    mount_point: str = ""
    size: int = 0
    used_percent: int = 0
    inodes: int = 0
    used_inodes_percent: int = 0

    @property
    def usage(self) -> str:
        """For people: ``100% of 64.0 MiB and 3% of 1024 inodes are used``; "" if unknown."""
        if not self.size:
            return ""
        unit, name = (2**30, "GiB") if self.size >= 2**30 else (2**20, "MiB")
        inodes = f" and {self.used_inodes_percent}% of {self.inodes} inodes" if self.inodes else ""
        return f"{self.used_percent}% of {self.size / unit:.1f} {name}{inodes} are used"


_KINDS = {
    errno.ENOSPC: FaultKind.SPACE,
    errno.EDQUOT: FaultKind.QUOTA,
    errno.EROFS: FaultKind.READ_ONLY,
    errno.EIO: FaultKind.IO,
    errno.EACCES: FaultKind.DENIED,
    errno.EPERM: FaultKind.DENIED,
    errno.EMFILE: FaultKind.DESCRIPTORS,
    errno.ENFILE: FaultKind.DESCRIPTORS,
    errno.ENOMEM: FaultKind.MEMORY,
    errno.ENOBUFS: FaultKind.MEMORY,
}
OF_DISKS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


class DiskError(OSError):
    """An error of a file system, with its state at that moment in the message and as data."""

    def __init__(self, number: int, text: str, fault: MachineFault) -> None:
        state = (
            f" (file system {fault.mount_point}{f': {usage}' if (usage := fault.usage) else ''})"
        )
        super().__init__(number, f"{text}{state if fault.mount_point else ''}", fault.path)
        self.fault = fault


def machine_fault(error: BaseException | None) -> MachineFault | None:
    """Return the fault of the machine behind an error or its causes, or None if there is none."""
    while error is not None:
        if isinstance(error, DiskError):
            return error.fault
        if isinstance(error, NoThread):
            return MachineFault(FaultKind.THREADS)
        if isinstance(error, OSError) and error.errno in _KINDS:
            path = error.filename if isinstance(error.filename, str) else ""
            return MachineFault(_KINDS[error.errno], path)
        error = error.__cause__
    return None


class CauseKind(StrEnum):
    """The subject of a failure, with the contents of ``name`` and ``within``."""

    MACHINE = "machine"
    """``fault``."""
    OBJECT_MISSING = "object missing"
    """A configMap or secret, and which of these it is."""
    KEY_MISSING = "key missing"
    VOLUME_SECRET = "volume secret"
    """A secret that a PersistentVolume names, and its namespace."""
    ENV_FILE = "env file"
    """A file that cannot be read, and its volume."""
    ENV_FILE_KEY = "env file key"
    """A key, and the file that lacks it."""
    SERVICES_UNREAD = "services unread"
    NOT_VERIFIED = "image not verified"
    """The image is on the node, and no pull has shown that the pod may use it."""
    SUB_PATH = "subPath"
    RUNTIME_CLASS = "runtimeClassName"
    RUN_AS_NON_ROOT = "runAsNonRoot"
    RESOLV_CONF = "resolvConf"
    NODE_ADDRESS = "node address"
    USER_NAMESPACE = "user namespace"
    """The runtime supports none."""
    TRUST_BUNDLE = "trust bundle"
    TRUST_BUNDLE_GATE = "trust bundle gate"
    HOST_PATH = "hostPath"
    """A path."""
    CLAIM_DRIVER_MISSING = "claim driver missing"
    """A DRA driver."""
    CLAIM_DRIVER = "claim driver"
    """A DRA driver whose call failed."""
    CLAIM_MISSING = "claim missing"
    """A ResourceClaim."""
    CLAIM_NOT_RESERVED = "claim not reserved"
    """A ResourceClaim."""
    DEVICES_TAKEN = "devices taken"
    """A resource."""
    DEVICES_UNHEALTHY = "devices unhealthy"
    """A resource."""
    NODE_PRESSURE = "node pressure"


class Cause(Struct, frozen=True):
    """Why something failed, as data: errors and results carry it up to where it is explained."""

    kind: CauseKind
    name: str = ""
    within: str = ""
    fault: MachineFault | None = None


class CausedError(Exception):
    """An error that may carry its cause."""

    cause: Cause | None = None

    def __init__(self, message: str, cause: Cause | None = None) -> None:
        super().__init__(message)
        if cause is not None:
            self.cause = cause


def cause_of(error: BaseException | None) -> Cause | None:
    """Return the cause that an error, or one behind it, carries; the machine's fault comes first.

    Example: ``Cause(CauseKind.OBJECT_MISSING, "settings", "configMap")``.
    """
    if (fault := machine_fault(error)) is not None:
        return Cause(CauseKind.MACHINE, fault=fault)
    while error is not None:
        if isinstance(error, CausedError) and error.cause is not None:
            return error.cause
        error = error.__cause__
    return None


def exhausted(error: BaseException | None) -> OSError | None:
    """The error of the machine that is behind another, or None: it failed for another reason.

    These are descriptors, memory, threads, space and inodes of a disk, and read-only disks.
    """
    while error is not None:
        if isinstance(error, NoThread) or (
            isinstance(error, OSError) and error.errno in _EXHAUSTED
        ):
            return error
        error = error.__cause__
    return None


class DBusError(Exception):
    """The bus or the called service refused, or the answer was not D-Bus.

    ``name`` is the error's D-Bus name, such as ``org.freedesktop.systemd1.UnitExists``; empty
    when the error is not a reply.
    """

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name
