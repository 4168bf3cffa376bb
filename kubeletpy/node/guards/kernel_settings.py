"""Which kernel settings a node needs, and what to do about those that differ. Pure.

Source: docs/reference/behaviour-resources.md, rj: kernel tunables.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.base.structs import Struct
from kubeletpy.base.text import number

WANTED: Mapping[str, int] = {
    "vm.overcommit_memory": 1,
    "vm.panic_on_oom": 0,
    "kernel.panic": 10,
    "kernel.panic_on_oops": 1,
    "kernel.keys.root_maxkeys": 1_000_000,
    "kernel.keys.root_maxbytes": 25_000_000,
}
"""Memory is overcommitted, since limits are enforced elsewhere. Running out of it kills a process,
not the machine. A kernel that panicked reboots after 10 s. Root, and so every container, has enough
keys."""


class Wrong(Struct, frozen=True):
    """A setting that differs from what a node needs."""

    name: str
    wanted: int
    found: str
    """The kernel's value; empty: it can't be read."""

    def __str__(self) -> str:
        return f"{self.name} is {self.found or 'not readable'}, must be {self.wanted}"


def compare(found: Mapping[str, str]) -> list[Wrong]:
    """The settings that differ from ``WANTED``; ``found``: what the kernel reports, by name."""
    return [
        Wrong(name, wanted, found.get(name, "").strip()[:40])
        for name, wanted in WANTED.items()
        if number(found.get(name)) != wanted
    ]


def refusal(wrong: list[Wrong]) -> str:
    """Why an agent with protectKernelDefaults does not start, and what to do; empty: it does."""
    if not wrong:
        return ""
    settings = " ".join(f"{each.name}={each.wanted}" for each in wrong)
    return (
        f"kernel settings differ: {'; '.join(map(str, wrong))}: "
        f"set them (sysctl -w {settings}), or set protectKernelDefaults to false"
    )
