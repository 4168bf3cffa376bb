"""From systemd's report on a unit to the command line of its kubelet. Pure.

systemd has read the unit file with its drop-ins, specifiers and quotes. It expands variables when
it starts the service, from environment files that it reads then. Must never quote the value of a
variable in a message. Source: systemd.service(5), systemd.exec(5).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from shlex import split

from kubeletpy.base.structs import Struct

_VARIABLE = re.compile(r"\$([A-Za-z_]\w*)", re.ASCII)
_BRACES = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)\}", re.ASCII)
_LINE = re.compile(
    r"""\s*(?:[#;][^\n]*|([A-Za-z_]\w*)[ \t]*=((?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\\'"\n])*))?"""
    r"(?:\n|\Z)",
    re.ASCII | re.DOTALL,
)
_PART = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)""", re.DOTALL)
_ESCAPE = re.compile(r'\\([\n"\\`$])')


class UnitError(ValueError):
    """A unit that can't be understood; the message names it or its file, and what is wrong."""


class UnitCommand(Struct, frozen=True):
    """A command of ExecStart.

    Attributes:
        program: its path.
        arguments: those after the program's name, with their variables.
        flags: such as ``no-env-expand``.
    """

    program: str
    arguments: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


class Service(Struct, frozen=True):
    """A service as systemd has loaded it.

    Attributes:
        files: the unit file and its drop-ins.
        commands: those of ExecStart.
        environment: assignments of Environment=.
        environment_files: paths or patterns, and whether they may be absent.
        unset: names, or assignments, of UnsetEnvironment=.
        directory: the working directory.
    """

    files: tuple[str, ...]
    commands: tuple[UnitCommand, ...]
    environment: tuple[str, ...] = ()
    environment_files: tuple[tuple[str, bool], ...] = ()
    unset: tuple[str, ...] = ()
    directory: str = "/"


def is_kubelet(program: str) -> bool:
    """Whether a program, by its path, is a kubelet."""
    return posixpath.basename(program) == "kubelet"


def read_environment_file(path: str, text: str) -> dict[str, str]:
    """The variables of an environment file such as /var/lib/kubelet/kubeadm-flags.env.

    Raises UnitError for a line without an assignment, or a quote that is not closed.
    """
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        line = _LINE.match(text, at)
        if line is None:
            number = text.count("\n", 0, at) + 1
            raise UnitError(f"{path}, line {number}: it is not an assignment NAME=value")
        if line[1]:
            found[line[1]] = _PART.sub(_unquoted, line[2].strip())
        at = line.end()
    return found


def _unquoted(part: re.Match[str]) -> str:
    single, double, escaped = part.groups()
    if double is not None:
        return _ESCAPE.sub(lambda each: each[1].strip("\n"), double)
    return single if single is not None else escaped.strip("\n")


def kubelet_command(
    service: Service, files: Sequence[Mapping[str, str]], where: str
) -> tuple[str, ...]:
    """The command line of the kubelet that a service starts.

    ``$NAME`` alone becomes the words of its value, ``${NAME}`` within a word the value as it is.

    Args:
        service: as systemd has loaded it.
        files: the variables of its environment files, in order; they win over Environment=.
        where: the unit, for messages.

    Raises:
        UnitError: it starts nothing, or not a kubelet.
    """
    environment = dict(each.partition("=")[::2] for each in service.environment)
    for each in files:
        environment.update(each)
    for word in service.unset:
        name, equals, value = word.partition("=")
        if not equals or environment.get(name) == value:
            environment.pop(name, None)
    command = last_command(service, where)
    if not is_kubelet(command.program):
        raise UnitError(
            f"{where}: ExecStart starts {command.program}, not a kubelet: start the kubelet, or "
            "name its flags after --"
        )
    if "no-env-expand" in command.flags:
        return (command.program, *command.arguments)
    found = [command.program]
    for word in command.arguments:
        alone = _VARIABLE.fullmatch(word)
        if alone is None:
            found.append(_BRACES.sub(lambda each: _value(each, environment), word))
            continue
        try:
            found += split(environment.get(alone[1], ""))
        except ValueError as error:
            raise UnitError(f"{where}: a quote in ${alone[1]} is not closed") from error
    return tuple(found)


def last_command(service: Service, where: str) -> UnitCommand:
    """The command of ExecStart that a unit ends with. Raises UnitError."""
    if not service.commands:
        raise UnitError(f"{where}: it has no ExecStart")
    return service.commands[-1]


def _value(match: re.Match[str], environment: Mapping[str, str]) -> str:
    return "$" if match[1] is None else environment.get(match[1], "")
