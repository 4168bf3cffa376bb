"""Check what the repository's Markdown files point to: links, anchors and paths in backticks.

python tools/check_links.py    # prints each dead reference; exits 1 if there is one

`mkdocs build --strict` checks the links between the pages of the site. This covers the rest: the
README and other files outside docs/, links from there into the repository, and file names in
backticks, such as `deploy/rbac.yaml`. Links to other hosts are not followed.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import markdown

ROOT = Path(__file__).resolve().parent.parent


class _Page(HTMLParser):
    """The targets, the anchors and the inline code of a rendered page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.code: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if anchor := values.get("id"):
            self.anchors.add(anchor)
        if target := values.get("href") or values.get("src"):
            self.links.append(target)
        if tag in ("code", "pre"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open == ["code"]:
            self.code.append(data)


@cache
def page(path: Path) -> _Page:
    """A Markdown file, rendered as the site renders it."""
    parsed = _Page()
    parsed.feed(markdown.markdown(path.read_text(), extensions=["tables", "toc", "fenced_code"]))
    return parsed


def dead_links(path: Path) -> list[str]:
    """Links on a page to files or anchors that do not exist."""
    dead = []
    for link in page(path).links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        wrong_anchor = (
            parts.fragment
            and target.suffix == ".md"
            and target.is_file()
            and parts.fragment not in page(target).anchors
        )
        if not target.exists() or not target.is_relative_to(ROOT) or wrong_anchor:
            dead.append(link)
    return dead


def dead_paths(path: Path, top: set[str]) -> list[str]:
    """Names in backticks that begin with a folder of the repository but don't exist."""
    return [
        name
        for name in page(path).code
        if "/" in name
        and name.split("/")[0] in top
        and not set(name) & set(" *{}<>…:[]()")
        and not (ROOT / name).exists()
    ]


def main() -> int:
    """Entry point; see the module docstring."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\n")
    top = {name.split("/")[0] for name in listed if "/" in name}
    wrong = 0
    for name in sorted(name for name in listed if name.endswith(".md")):
        path = ROOT / name
        for dead in (*dead_links(path), *dead_paths(path, top)):
            print(f"{name}: {dead} leads to nothing", file=sys.stderr)
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
