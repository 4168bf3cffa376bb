"""The pause program as bytes: a static ELF file of a few hundred bytes, so no compiler is needed.

It blocks SIGINT, SIGTERM and SIGCHLD, then waits for them with rt_sigtimedwait. SIGINT and SIGTERM
end it with exit code 0. Otherwise it reaps child processes: with a shared process namespace it
is the init process. Works as process 1, where a signal without a handler is otherwise ignored.
"""

from __future__ import annotations

import struct

_BASE = 0x400000
_HEADERS = 64 + 56

_X86_64 = bytes.fromhex(
    "6802400100"  # push the signal set {2, 15, 17}
    "b80e000000 31ff 4889e6 31d2 41ba08000000 0f05"  # rt_sigprocmask(SIG_BLOCK, set, NULL, 8)
    "b880000000 4889e7 31f6 31d2 41ba08000000 0f05"  # wait: rt_sigtimedwait(set, NULL, NULL, 8)
    "83f802 741f 83f80f 741a"  # SIGINT or SIGTERM: to exit
    "b83d000000 83cfff 31f6 ba01000000 4531d2 0f05"  # reap: wait4(-1, NULL, WNOHANG, NULL)
    "85c0 7fe8 ebc8"  # again while there are children; then to wait
    "b8e7000000 31ff 0f05"  # exit: exit_group(0)
)

_AARCH64 = struct.pack(
    "<32I",
    *(0xD10043FF, 0xD2880040, 0xF2A00020, 0xF90003E0),  # the signal set on the stack
    *(0xD2800000, 0x910003E1, 0xD2800002, 0xD2800103, 0xD28010E8, 0xD4000001),  # rt_sigprocmask
    *(0x910003E0, 0xD2800001, 0xD2800002, 0xD2800103, 0xD2801128, 0xD4000001),  # rt_sigtimedwait
    *(0x7100081F, 0x54000180, 0x71003C1F, 0x54000140),  # SIGINT or SIGTERM: to exit
    *(0x92800000, 0xD2800001, 0xD2800022, 0xD2800003, 0xD2802088, 0xD4000001),  # wait4
    *(0x7100001F, 0x54FFFF2C, 0x17FFFFEE),  # again while there are children; then to wait
    *(0xD2800000, 0xD2800BC8, 0xD4000001),  # exit_group(0)
)

_MACHINES = {"x86_64": (62, _X86_64), "aarch64": (183, _AARCH64)}


def pause_program(machine: str) -> bytes | None:
    """The ELF file for `machine` (as `uname -m` names it); None when there is no code for it."""
    if machine not in _MACHINES:
        return None
    number, code = _MACHINES[machine]
    size = _HEADERS + len(code)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    entry = _BASE + _HEADERS
    header = struct.pack("<HHIQQQIHHHHHH", 2, number, 1, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)
    return ident + header + segment + code
