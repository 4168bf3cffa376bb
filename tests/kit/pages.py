"""The shell code of a page of the documentation, and the output that the page expects.

Small: the sections cluster and nodes run pages, and share nothing else. A code block with a title
is a file to write, a block ``sh`` is run, and the block ``text`` after it is the output (``…``: any
text). All of a page runs in one shell, in the order of the page.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator

BLOCK = re.compile(r'^```(\w+)(?: title="([\w./-]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
_PRINTED = "--- printed ---"


def follow_page(page: str, run: Callable[[str], str]) -> None:
    """Run a page's shell code, and check what it prints.

    Args:
        page: the text.
        run: runs a script in a shell that ends at the first failure; returns its output.
    """
    followed = list(_steps(page))
    script = "".join(f"{code}\necho '{_PRINTED}'\n" for code, _ in followed)
    for (code, expected), output in zip(followed, run(script).split(_PRINTED), strict=False):
        assert _contains(output, expected), f"{code} prints:\n{output}"


def _steps(page: str) -> Iterator[tuple[str, str]]:
    """Shell code that follows a page, each with the output that it prints."""
    blocks = [(found[1], found[2], found[3]) for found in BLOCK.finditer(page)]
    assert len(blocks) * 2 == len(re.findall("^```", page, re.MULTILINE)), "a block is not marked"
    for index, (language, title, text) in enumerate(blocks):
        if title:
            yield f"printf %s {shlex.quote(text)} > {title}", ""
        elif language == "sh":
            after = blocks[index + 1] if index + 1 < len(blocks) else ("", "", "")
            yield text, after[2] if after[0] == "text" else ""
        else:
            assert language == "text", f"a block {language} without a title"


def _contains(output: str, expected: str) -> bool:
    """Whether an output has the expected lines, one after the other."""
    return bool(
        re.search(".*".join(map(re.escape, expected.strip().split("…"))), output, re.DOTALL)
    )
