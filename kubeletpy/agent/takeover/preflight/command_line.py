"""From a service's ExecStart and environment to a command line. Pure.

Source: systemd.service(5), "Command lines".
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence

from kubeletpy.agent.takeover.preflight.unit_file import Service, UnitError, split_words

PREFIXES = "@-:+!|"
"""Characters before the program of an ExecStart, each with a meaning."""
_BRACES = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_WORD = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")


def is_kubelet(program: str) -> bool:
    """Whether a program, by its path, is a kubelet."""
    return posixpath.basename(program) == "kubelet"


def expand_command(text: str, environment: Mapping[str, str], where: str) -> list[str]:
    """The program and its arguments. Raises UnitError.

    ``$NAME`` alone becomes the words of its value, ``${NAME}`` within a word the value as it is.
    """
    stripped = text.lstrip(PREFIXES)
    prefixes = text[: len(text) - len(stripped)]
    words = split_words(stripped, where)
    if not words:
        raise UnitError(f"{where}: ExecStart names no program")
    program, rest = words[0], words[1:]
    if "@" in prefixes:
        rest = rest[1:]  # the first one is argv[0]
    if ":" in prefixes:
        return [program, *rest]
    found = [program]
    for word in rest:
        alone = _WORD.fullmatch(word)
        if alone is not None:
            found += split_words(environment.get(alone[1], ""), where)
        else:
            found.append(_BRACES.sub(lambda each: _value(each, environment), word))
    return found


def kubelet_command(
    service: Service, files: Sequence[Mapping[str, str]], where: str
) -> tuple[str, ...]:
    """The command line of the kubelet that a service starts.

    Args:
        service: of the unit and its drop-ins.
        files: the variables of its environment files, in order; they win over Environment=.
        where: the unit, for messages.

    Raises:
        UnitError: it starts nothing, or not a kubelet.
    """
    environment = dict(service.environment)
    for each in files:
        environment.update(each)
    for word in service.unset:
        name, equals, value = word.partition("=")
        if not equals or environment.get(name) == value:
            environment.pop(name, None)
    if not service.commands:
        raise UnitError(f"{where}: it has no ExecStart")
    command = expand_command(service.commands[-1], environment, where)
    if not is_kubelet(command[0]):
        raise UnitError(
            f"{where}: ExecStart starts {command[0]}, not a kubelet: start the kubelet, or name "
            "its flags after --"
        )
    return tuple(command)


def _value(match: re.Match[str], environment: Mapping[str, str]) -> str:
    return "$" if match[1] is None else environment.get(match[1], "")
