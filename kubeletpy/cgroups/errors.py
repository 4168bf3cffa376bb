"""What goes wrong with cgroups. Pure."""

from __future__ import annotations


class CgroupError(Exception):
    """A cgroup could not be made, written or removed; the message names it and says why."""


class CgroupBusy(CgroupError):
    """A cgroup could not be removed yet: something still runs in it."""


class CgroupsUnavailable(CgroupError):
    """This machine has no cgroups that pods could be put in; the message says what to do."""
