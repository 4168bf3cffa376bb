"""Ports as arguments, and those of ``kubeletpy up``: named by a person, usual, or a free one.

A port that a person names is never replaced by another one. The usual one is, if a program listens
there: a kubelet or a second node on the same machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from kubeletpy.base.structs import Struct
from kubeletpy.config import Problem
from kubeletpy.server.health import is_free, next_free_port

MAX_PORT = 65535


def port(text: str) -> int:
    """The port that an argument names; 0 is a free one, or none."""
    if not (text.isascii() and text.isdecimal()) or int(text) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to {MAX_PORT}")
    return int(text)


class UpPort(Struct, frozen=True):
    """A port that ``kubeletpy up`` listens at.

    Attributes:
        option: the option that names it.
        usual: its number unless somebody names one.
        address: where it is, unless the configuration has ``address_field``.
        use: what it is for.
        field: its field in a KubeletConfiguration; empty: there is none.
    """

    option: str
    usual: int
    address: str
    use: str
    field: str = ""
    address_field: str = ""

    @property
    def attribute(self) -> str:
        """The option's attribute of parsed arguments."""
        return self.option.removeprefix("--").replace("-", "_")


API = UpPort("--port", 6443, "127.0.0.1", "the API")
KUBELET = UpPort("--kubelet-port", 10250, "127.0.0.1", "logs, exec and metrics", "port", "address")
HEALTHZ = UpPort(
    "--healthz-port",
    10248,
    "127.0.0.1",
    "health checks (0: none)",
    "healthzPort",
    "healthzBindAddress",
)
UP_PORTS = (API, KUBELET, HEALTHZ)


def choose_ports(
    parsed: Mapping[str, object], document: Mapping[str, object], report: Callable[[str], None]
) -> tuple[dict[UpPort, object], list[Problem]]:
    """The number of each port, and a problem for each port that is named and taken.

    Args:
        parsed: the command line's arguments.
        document: the configuration, which is not checked yet.
        report: called with a line for each port that is not the usual one because that is taken.
    """
    chosen: dict[UpPort, object] = {}
    problems: list[Problem] = []
    for each in UP_PORTS:
        number, option = document.get(each.field), parsed[each.attribute]
        named, source = (option, each.option) if option is not None else (number, each.field)
        address = str(document.get(each.address_field) or each.address)
        if each is KUBELET and document.get("enableServer") is False:
            continue
        if each is KUBELET and option == 0:
            named = next_free_port(address, each.usual, _numbers(chosen))
        desired = each.usual if named is None else named
        chosen[each] = desired
        if not isinstance(desired, int) or not 0 < desired <= MAX_PORT:
            continue  # none, or refused together with the other fields
        others = _numbers({other: at for other, at in chosen.items() if other is not each})
        if desired not in others and is_free(address, desired):
            continue
        free = next_free_port(address, desired, others)
        if named is None:
            report(f"port {desired} is taken: {free} is for {each.use} ({each.option})")
            chosen[each] = free
            continue
        remedy = f"is taken; `ss -ltnp 'sport = :{desired}'` shows the program that listens there. "
        remedy += f"Stop it, or start with {each.option} {free}"
        problems.append(Problem(source, str(desired), remedy))
    return chosen, problems


def _numbers(chosen: Mapping[UpPort, object]) -> list[int]:
    return [each for each in chosen.values() if isinstance(each, int)]
