"""Files of environment variables, line by line."""

from __future__ import annotations

import pytest

from kubeletpy.volumes.containers.environment import EnvFileError, parse_env_file


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("\n\n", {}),
        ("# K='v'\n  # K='v'\n", {}),
        ("K='v'", {"K": "v"}),
        ("K='v'\n", {"K": "v"}),
        ("K='v'\r\nL='w'\r\n", {"K": "v", "L": "w"}),
        ("  K='v'", {"K": "v"}),
        ("K=''", {"K": ""}),
        ("K='v'\nK='w'", {"K": "v"}),
        ("K='v' # says why\nL='w'# so", {"K": "v", "L": "w"}),
        ("K='v'  \nL='w'", {"K": "v", "L": "w"}),
        ("K= 'v'\nL='w'", {"K": "", "L": "w"}),
        ("K=\t'v'", {"K": ""}),
        ("K='a\nb'\nL='w'", {"K": "a\nb", "L": "w"}),
        ("K='# no'", {"K": "# no"}),
        ("K='a=b'", {"K": "a=b"}),
    ],
)
def test_files_that_are_well_made(text: str, values: dict[str, str]) -> None:
    found = parse_env_file(text)
    assert (dict(found.values), found.problem) == (values, "")
    assert found.get("none") is None


MISSING, EMPTY = "'=' is missing", "the name is empty"
BLANKS, QUOTES = "whitespace before '=' is not allowed", "the value must be in single quotes"
OPEN, MORE = "the single quote is not closed", "there is text after the closing quote"


@pytest.mark.parametrize(
    ("text", "line", "what", "values"),
    [
        ("K", 1, MISSING, {}),
        ("K='v'\nL", 2, MISSING, {"K": "v"}),
        ("\n\n# x\nL", 4, MISSING, {}),
        ("K= x\nL", 2, MISSING, {"K": ""}),
        ("K='a\nb\nc'\nL", 4, MISSING, {"K": "a\nb\nc"}),
        ("K='a\nb'\n\n='x'", 4, EMPTY, {"K": "a\nb"}),
        (" ='x'", 1, EMPTY, {}),
        ("K ='x'", 1, BLANKS, {}),
        ("K=", 1, QUOTES, {}),
        ("K=x", 1, QUOTES, {}),
        ('K="x"', 1, QUOTES, {}),
        ("K='x", 1, OPEN, {}),
        ("K='", 1, OPEN, {}),
        ("K='x\nL=", 1, OPEN, {}),
        ("K='x'y", 1, MORE, {}),
        ("K='x' y", 1, MORE, {}),
        ("K='a\nb'c", 1, MORE, {}),
        ("K='x''", 1, MORE, {}),
    ],
)
def test_where_a_file_is_malformed(text: str, line: int, what: str, values: dict[str, str]) -> None:
    found = parse_env_file(text)
    assert dict(found.values) == values
    assert found.problem == f"invalid environment variable format at line {line}: {what}"
    for name, value in values.items():
        assert found.get(name) == value
    with pytest.raises(EnvFileError, match=f"at line {line}: "):
        found.get("none")
