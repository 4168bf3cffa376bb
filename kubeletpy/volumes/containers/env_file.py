"""Reads the variables of an env file (fileKeyRef): ``KEY='text'`` lines and comments.

Pure; a container may have written any text. Errors name lines, never values. Source:
docs/reference/behaviour.md, h3; KEP-3721.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kubeletpy.base.structs import Hidden, HidesFields, Struct, field

MAX_FILE = 64 << 10
"""The most bytes of a file that are read; a longer file is an error."""
_SPACE = " \t"


class EnvFileError(ValueError):
    """The file violates the grammar; the message states where."""


class EnvFile(HidesFields, Struct, frozen=True):
    """The content of a file, up to where it is malformed."""

    values: Hidden[Mapping[str, str]] = field(default_factory=dict)
    problem: str = ""

    def get(self, key: str) -> str | None:
        """The value of a key; None when there is no such key.

        Raises:
            EnvFileError: the file is malformed, and the key does not occur before that.
        """
        value = self.values.get(key)
        if value is None and self.problem:
            raise EnvFileError(self.problem)
        return value


def parse_env_file(text: str) -> EnvFile:
    """All variables; the first of a name wins. Lines end in LF or CRLF."""
    values: dict[str, str] = {}
    try:
        for name, value in _entries(text):
            values.setdefault(name, value)
    except EnvFileError as error:
        return EnvFile(values, str(error))
    return EnvFile(values)


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Raises EnvFileError."""
    text = text.replace("\r\n", "\n")
    position, line = 0, 1
    while position < len(text):
        end = _line_end(text, position)
        stripped = text[position:end].lstrip(_SPACE)
        if not stripped or stripped.startswith("#"):
            position, line = end + 1, line + 1
            continue
        name, equals, value = stripped.partition("=")
        _check_name(name, equals, line)
        if value.startswith((" ", "\t")):
            yield name, ""  # like a shell
            position, line = end + 1, line + 1
            continue
        if not value.startswith("'"):
            raise _error(line, "the value must be in single quotes")
        opening = end - len(value)
        closing = text.find("'", opening + 1)
        if closing == -1:
            raise _error(line, "the single quote is not closed")
        end = _line_end(text, closing)
        after = text[closing + 1 : end].lstrip(_SPACE)
        if after and not after.startswith("#"):
            raise _error(line, "there is text after the closing quote")
        yield name, text[opening + 1 : closing]
        line += text.count("\n", position, end) + 1
        position = end + 1


def _check_name(name: str, equals: str, line: int) -> None:
    if not equals:
        raise _error(line, "'=' is missing")
    if not name.strip(_SPACE):
        raise _error(line, "the name is empty")
    if name != name.rstrip(_SPACE):
        raise _error(line, "whitespace before '=' is not allowed")


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _error(line: int, what: str) -> EnvFileError:
    return EnvFileError(f"invalid environment variable format at line {line}: {what}")
