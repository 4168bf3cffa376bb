"""From the texts of a systemd unit and its drop-ins to its service's command line. Pure.

Source: systemd.syntax(7), systemd.service(5), systemd.exec(5). Only settings on which a command
line depends are read. Must never quote the value of a variable in a message.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kubeletpy.base.structs import Struct

_WHITESPACE = " \t\n\r"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "s": " ",
    "\\": "\\",
    '"': '"',
    "'": "'",
}


class UnitError(ValueError):
    """A unit file that can't be understood; the message names file, line and what is wrong."""


class Service(Struct, frozen=True):
    """The [Service] section of a unit with its drop-ins.

    Attributes:
        commands: the texts of ExecStart.
        environment: variables of Environment=.
        environment_files: in order; one that begins with ``-`` may be absent.
        unset: names, or assignments, of UnsetEnvironment=.
        directory: WorkingDirectory=; empty: the root directory.
    """

    commands: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    environment_files: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    directory: str = ""


def read_service(texts: Iterable[tuple[str, str]], specifiers: Mapping[str, str] | None) -> Service:
    """The service of a unit file and its drop-ins.

    Args:
        texts: (path, text), the unit file first, then the drop-ins in their order.
        specifiers: values of specifiers such as ``H``; others are an error where they are used.
            None: they stay as they are.

    Raises:
        UnitError: a line that is neither a section, an assignment nor a comment.
    """
    commands: list[str] = []
    environment: dict[str, str] = {}
    files: list[str] = []
    unset: list[str] = []
    directory = ""
    for path, text in texts:
        for number, section, key, value in _assignments(path, text):
            if section != "Service":
                continue
            where = f"{path}, line {number}"
            if key == "ExecStart":
                commands = [*commands, _expanded(value, specifiers, where)] if value else []
            elif key == "Environment":
                supplied = split_parts(_expanded(value, specifiers, where), where)
                environment = {**environment, **_pairs(supplied, where)} if value else {}
            elif key == "EnvironmentFile":
                files = [*files, _expanded(value, specifiers, where)] if value else []
            elif key == "UnsetEnvironment":
                unset = [*unset, *split_parts(value, where)] if value else []
            elif key == "WorkingDirectory":
                directory = _expanded(value.removeprefix("-"), specifiers, where)
    return Service(tuple(commands), environment, tuple(files), tuple(unset), directory)


def read_environment_file(path: str, text: str) -> dict[str, str]:
    """The variables of an environment file such as /var/lib/kubelet/kubeadm-flags.env.

    Raises UnitError for a line without an assignment, or a quote that is not closed.
    """
    found: dict[str, str] = {}
    rest, number = text, 0
    while rest:
        line, _, after = rest.partition("\n")
        number += 1
        if not line.strip() or line.lstrip()[0] in "#;":
            rest = after
            continue
        name, equals, _ = line.partition("=")
        if not equals or not _NAME.fullmatch(name.strip()):
            raise UnitError(f"{path}, line {number}: it is not an assignment NAME=value")
        start = len(name) + 1
        value, used = _file_value(rest[start:], f"{path}, line {number}")
        found[name.strip()] = value
        number += rest[start : start + used].count("\n")
        rest = rest[start + used :].partition("\n")[2]
    return found


def split_parts(text: str, where: str) -> list[str]:
    """Words between white space; quotes and C-style escapes as systemd reads them.

    Raises UnitError for a quote that is not closed.
    """
    parts: list[str] = []
    word: list[str] | None = None
    quote = ""
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            word = [] if word is None else word
            piece, at = _escape(text, at)
            word.append(piece)
        elif quote:
            if char == quote:
                quote = ""
            elif word is not None:
                word.append(char)
        elif char in "\"'":
            quote, word = char, [] if word is None else word
        elif char in _WHITESPACE:
            if word is not None:
                parts.append("".join(word))
            word = None
        else:
            word = [char] if word is None else [*word, char]
    if quote:
        raise UnitError(f"{where}: a quote is not closed")
    if word is not None:
        parts.append("".join(word))
    return parts


def _assignments(path: str, text: str) -> Iterator[tuple[int, str, str, str]]:
    """Line, section, key and value of each assignment; lines that end in a backslash go on."""
    section, pending, first = "", "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith(("#", ";")) or (not line and not pending):
            continue  # also between the lines of one that goes on
        first = first or number
        pending += line
        if line.endswith("\\"):
            pending = pending[:-1] + " "
            continue
        yield from _assignment(path, first, section, pending.strip())
        section = _section(pending) or section
        pending, first = "", 0
    if pending:
        yield from _assignment(path, first, section, pending.strip())


def _section(line: str) -> str:
    line = line.strip()
    return line[1:-1] if line.startswith("[") and line.endswith("]") else ""


def _assignment(
    path: str, number: int, section: str, line: str
) -> Iterator[tuple[int, str, str, str]]:
    if not line or _section(line):
        return
    key, equals, value = line.partition("=")
    if not equals:
        raise UnitError(f"{path}, line {number}: it is neither a section nor NAME=value")
    yield number, section, key.strip(), value.strip()


def _expanded(text: str, specifiers: Mapping[str, str] | None, where: str) -> str:
    """The text with its specifiers replaced, ``%%`` by a percent sign."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name == "%":
            return "%"
        if specifiers is None or name not in specifiers:
            raise UnitError(
                f"{where}: specifier %{name} is not known here: start the kubelet, or name its "
                "flags after --"
            )
        return specifiers[name]

    return text if specifiers is None else re.sub(r"%(.)", value, text)


def _pairs(parts: Iterable[str], where: str) -> dict[str, str]:
    found = {}
    for word in parts:
        name, equals, value = word.partition("=")
        if not equals:
            raise UnitError(f"{where}: Environment has a word that is not NAME=value")
        found[name] = value
    return found


def _escape(text: str, at: int) -> tuple[str, int]:
    """The character for a backslash before ``at``, and the position after the escape."""
    char = text[at]
    if char == "x" and re.fullmatch(r"[0-9a-fA-F]{2}", text[at + 1 : at + 3]):
        return chr(int(text[at + 1 : at + 3], 16)), at + 3
    return _ESCAPES.get(char, f"\\{char}"), at + 1


def _file_value(text: str, where: str) -> tuple[str, int]:
    """The value at the start of a text of an environment file, and how many characters it takes."""
    value: list[str] = []
    quote, at, kept = "", 0, 0
    while at < len(text):
        char = text[at]
        if char == "\n" and not quote:
            break
        at += 1
        if char == "\\" and quote != "'" and at < len(text):
            after = text[at]
            at += 1
            if after != "\n":
                value.append(after if not quote or after in '"\\`$' else f"\\{after}")
                kept = len(value)
        elif quote and char == quote:
            quote = ""
        elif not quote and char in "\"'":
            quote, kept = char, len(value)
        elif quote or value or char not in _WHITESPACE:
            value.append(char)
            if quote or char not in _WHITESPACE:
                kept = len(value)
    if quote:
        raise UnitError(f"{where}: a quote is not closed")
    return "".join(value[:kept]), at


# Command lines of a service. Source: systemd.service(5), "Command lines".

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
    parts = split_parts(stripped, where)
    if not parts:
        raise UnitError(f"{where}: ExecStart names no program")
    program, rest = parts[0], parts[1:]
    if "@" in prefixes:
        rest = rest[1:]  # the first one is argv[0]
    if ":" in prefixes:
        return [program, *rest]
    found = [program]
    for word in rest:
        alone = _WORD.fullmatch(word)
        if alone is not None:
            found += split_parts(environment.get(alone[1], ""), where)
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
