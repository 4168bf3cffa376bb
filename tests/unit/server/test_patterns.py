"""A client's search pattern: expensive ones are refused, and no match takes long."""

from __future__ import annotations

import time

import pytest

from kubeletpy.server.node_logs.query import BadPattern, check


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "a", "x.*y", "a*?b+?c??", "(a|b)*c", "()*", "^*$", "a{2,3}", "a{2,}", "$(id)"),
        *("[]a]", "[^]a]", "[[:alpha:]_]+", r"[\]]", "{", "a{,3}", "a{x", r"\d+\.\pL", r"\(\*"),
        *("[[:alpha:]]{1000}(x)", r"[[:alpha:]]\d(x)", r"x\E\Qy", "[:(?:]"),
        *("(?i)a", "(?i-s:a)+", "a(?i)*", "(?P<n>a)+", "(?<n>a)", r"\Q(*[", r"\Q(*\E+", "a]}"),
        *("[](]", "[^](]", "[[:]", "[[:a]", "^[a]"),
    ],
)
def test_expressions(pattern: str) -> None:
    check(pattern)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "missing closing ): `(`"),
        ("(a(b)", "missing closing ): `(a(b)`"),
        ("a)(", "unexpected ): `a)(`"),
        ("[a", "missing closing ]: `[a`"),
        ("x[]", "missing closing ]: `[]`"),
        ("x{1000}[:1", "missing closing ]: `[:1`"),
        (r"[[:alpha:]]\d(", r"missing closing ): `[[:alpha:]]\d(`"),
        (r"[\]", r"missing closing ]: `[\]`"),
        (r"\Qa\E(", r"missing closing ): `\Qa\E(`"),
        (r"\Qa\E)", r"unexpected ): `\Qa\E)`"),
        (r"a\Q\E**", "invalid nested repetition operator: `**`"),
        ("[[:alpha:]", "missing closing ]: `[[:alpha:]`"),
        ("[[::]", "missing closing ]: `[[::]`"),
        ("[[:a", "missing closing ]: `[[:a`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a|+", "missing argument to repetition operator: `+`"),
        ("(?i){2}", "missing argument to repetition operator: `{2}`"),
        ("(?:?)", "missing argument to repetition operator: `?`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{2}{3}", "invalid nested repetition operator: `{2}{`"),
        ("a+?+", "invalid nested repetition operator: `+?+`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{3,2}", "invalid repeat count: `{3,2}`"),
        ("a\\", "trailing backslash at end of expression"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?<!a)", "invalid or unsupported Perl syntax: `(?<`"),
        ("(?", "invalid or unsupported Perl syntax: `(?`"),
    ],
)
def test_invalid_patterns_are_refused(pattern: str, why: str) -> None:
    with pytest.raises(BadPattern) as refused:
        check(pattern)
    assert str(refused.value) == why


@pytest.mark.parametrize(
    "pattern",
    [
        "(?i)" + "[\u0001-\U0010ffff]" * 204,
        *("(" * 1024, "[" * 1024, "[:" * 512, "a{1" * 341, r"\Q" * 512, "(?i:" * 256, "a?" * 512),
    ],
)
def test_no_pattern_takes_long(pattern: str) -> None:
    began = time.thread_time()
    try:
        check(pattern)
    except BadPattern as error:
        assert "missing closing" in str(error)
    assert time.thread_time() - began < 0.05
