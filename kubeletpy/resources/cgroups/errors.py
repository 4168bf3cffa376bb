"""Errors of cgroup operations. Pure."""

from __future__ import annotations


class CgroupError(Exception):
    """A cgroup could not be created, written or removed; the message names it and states why."""


class CgroupBusy(CgroupError):
    """A cgroup could not be removed yet: processes still run in it."""


class CgroupsUnavailable(CgroupError):
    """The machine has no cgroups for pods; the message states what to do."""
